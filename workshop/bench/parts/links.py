"""A drive over N nodes, each behind a link of 1 Gbit/s, against N times iperf3's throughput over it."""

import os
from typing import Any

from bench.harness import fio
from bench.harness.figures import Metric, from_rounds
from bench.harness.fio import Job
from bench.harness.rounds import interleave
from bench.scratch import Scratch, drop_caches, write_random
from bench.settings import Settings
from bench.tools import cheetah, iperf
from cheetah.bench.figure import Figure
from cheetah.bench.units import GIB, MIB, iec
from lab.network import Lab

RATE = "1gbit"
COUNTS = (1, 2, 4)
METRICS = (Metric("rate", "", "MiB/s", "higher", 0.97),)
DEPTH = 16


def drive_over(scratch: Scratch, lab: Lab, size_bytes: int, image: Any = None) -> Any:
    """Creates a striped drive over one node on each machine of the lab; returns its file's path."""
    share_bytes = size_bytes // len(lab.nodes) + MIB
    nodes = [cheetah.node(scratch, share_bytes, node.address, node.command) for node in lab.nodes]
    return cheetah.create(scratch, nodes, size_bytes, image, enter=lab.examiner.command)


def through_export(scratch: Scratch, lab: Lab, drive: str, rw: Any, size_bytes: int) -> Any:
    """Returns MiB/s of one pass over the drive through a fresh export on the examiner's machine."""
    with scratch.child() as turn:
        server = cheetah.export(turn, drive, writable=rw == "write", tcp=False, enter=lab.examiner.command)
        return server.measure(Job(rw, MIB, size_bytes, DEPTH))


def through_mount(scratch: Scratch, lab: Lab, drive: str, size_bytes: int) -> dict[str, Any]:
    """Returns MiB/s of one pass over the drive through a fresh mount with cold caches."""
    with scratch.child() as turn:
        _, path = cheetah.mount(turn, drive, enter=lab.examiner.command)
        drop_caches()
        return {"rate": fio.on_file(Job("read", MIB, size_bytes), path).bytes_per_s / MIB}


def measure_count(settings: Settings, count: int) -> list[Figure]:
    """Returns the figures for that many nodes."""
    # About four seconds a pass, and more than any read-ahead could hold.
    size_bytes = count * (32 * MIB if settings.quick else GIB // 2)
    seconds = 1 if settings.quick else 3
    figures = []
    with Scratch() as scratch, Lab(count, RATE) as lab:
        pattern = write_random(os.path.join(scratch.ram_dir, "pattern"), size_bytes)
        drive = drive_over(scratch, lab, size_bytes, pattern)
        os.remove(pattern)
        iperf.start_servers(scratch, lab)
        plural = "node" if count == 1 else "nodes"
        print(f"links: {count} {plural} behind {RATE} each, a drive of {iec(size_bytes)}", flush=True)
        carried = f"{count} × iperf3"
        reads = {
            "cheetah export": lambda: through_export(scratch, lab, drive, "read", size_bytes),
            "cheetah mount": lambda: through_mount(scratch, lab, drive, size_bytes),
            carried: lambda: iperf.sum_of_links(lab, True, seconds),
        }
        results = interleave(f"{count} {plural}: sequential read", settings.rounds, reads)
        for key, what, ours in (
            ("read", "read through the export", "cheetah export"),
            ("mount-read", "read through the mount", "cheetah mount"),
        ):
            pair = {name: results[name] for name in (ours, carried)}
            figures += from_rounds(f"links/{key}-{count}", f"{count} {plural}: sequential {what}", ours, METRICS, pair)
        writer = "cheetah export --writable"
        writes = {
            writer: lambda: through_export(scratch, lab, drive, "write", size_bytes),
            carried: lambda: iperf.sum_of_links(lab, False, seconds),
        }
        what = f"{count} {plural}: sequential write through the export"
        results = interleave(f"{count} {plural}: sequential write", settings.rounds, writes)
        figures += from_rounds(f"links/write-{count}", what, writer, METRICS, results)
    return figures


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures."""
    return [figure for count in COUNTS for figure in measure_count(settings, count)]
