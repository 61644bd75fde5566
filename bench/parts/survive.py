"""Drives with redundancy beside a stripe over as many nodes, whole and with a node lost, and their repair."""

import os
import signal
import time
from typing import Any

from bench.scratch import Scratch, write_random
from bench.settings import Settings
from bench.tools import cheetah
from cheetah.bench.figure import Figure, Metric, from_rounds
from cheetah.bench.fio import Job
from cheetah.bench.rounds import interleave
from cheetah.bench.units import KIB, MIB, iec

# Layout, its options, nodes, and the bars of a 1 MiB write, a read and a 4 KiB overwrite beside the stripe's.
LAYOUTS = (
    ("mirror", ["--layout", "mirror", "--copies", "2"], 2, 0.50, 0.97, 0.50),
    ("parity", ["--layout", "parity", "--parity", "1"], 3, 0.60, 0.97, 0.35),
)
DEGRADED_BAR = 0.65


def drive_over(scratch: Scratch, count: int, size_bytes: int, options: Any, image: Any) -> Any:
    """Creates a drive over new nodes, each with room for a copy of all of it; returns its file's path and the nodes."""
    nodes = [cheetah.node(scratch, size_bytes + 8 * MIB) for _ in range(count)]
    path = scratch.path("drive") + ".drive"
    cheetah.call(["create", path, "--nodes", ",".join(node.nbd for node in nodes), *options, "--from", image])
    for node in nodes:
        node.wait_for_memory()
    return path, nodes


def compare(workloads: Any, servers: Any, layout: str, settings: Settings) -> list[Figure]:
    """Interleaves each workload on the redundant drive and on the stripe."""
    ours, stripe = servers
    figures = []
    for key, what, rw, block_bytes, depth, bar in workloads:
        metric = "iops" if block_bytes < MIB else "rate"
        unit = "requests/s" if block_bytes < MIB else "MiB/s"
        job = Job(rw, block_bytes, settings.size_bytes, depth, runtime_s=settings.runtime_s)
        turns = {server.name: lambda server=server, job=job: server.measure(job) for server in (ours, stripe)}
        what = f"{layout}: {what}"
        results = interleave(what, settings.rounds, turns, metric)
        metrics = (Metric(metric, "", unit, "higher", bar), Metric("p99", "p99 latency", "µs", "lower"))
        figures += from_rounds(f"survive/{layout}-{key}", what, ours.name, metrics, results)
    return figures


def reads(bar: float, key: str = "", condition: str = "") -> Any:
    """The reading workloads."""
    return (
        (f"seq-read-1m{key}", f"1 MiB sequential read, depth 16{condition}", "read", MIB, 16, bar),
        (f"rand-read-4k-qd1{key}", f"4 KiB random read, depth 1{condition}", "randread", 4 * KIB, 1, bar),
        (f"rand-read-4k-qd32{key}", f"4 KiB random read, depth 32{condition}", "randread", 4 * KIB, 32, bar),
    )


def measure_layout(settings: Settings, layout: str, options: Any, count: int, bars: Any) -> list[Figure]:
    """Measures one layout."""
    write_bar, read_bar, overwrite_bar = bars
    writes = (
        ("seq-write-1m", "1 MiB sequential write, depth 16", "write", MIB, 16, write_bar),
        ("rand-write-4k-qd32", "4 KiB random overwrite, depth 32", "randwrite", 4 * KIB, 32, overwrite_bar),
    )
    size_bytes = settings.size_bytes
    with Scratch() as scratch:
        pattern = write_random(os.path.join(scratch.ram_dir, "pattern"), size_bytes)
        ours, nodes = drive_over(scratch, count, size_bytes, options, pattern)
        stripe, _ = drive_over(scratch, count, size_bytes, ["--layout", "stripe"], pattern)
        os.remove(pattern)
        print(f"survive: {layout}, {iec(size_bytes)} over {count} nodes, loopback TCP", flush=True)

        def servers(turn: Scratch, writable: bool) -> Any:
            return (
                cheetah.export(turn, ours, writable=writable, name=layout),
                cheetah.export(turn, stripe, writable=writable, name="stripe"),
            )

        with scratch.child() as turn:
            figures = compare(reads(read_bar), servers(turn, False), layout, settings)
        with scratch.child() as turn:
            figures += compare(writes, servers(turn, True), layout, settings)
        os.kill(nodes[0].process.pid, signal.SIGKILL)
        with scratch.child() as turn:
            degraded = reads(DEGRADED_BAR, "-degraded", " with a node lost")
            figures += compare(degraded, servers(turn, False), layout, settings)
        spare = cheetah.node(scratch, size_bytes + 8 * MIB)
        spare.wait_for_memory()
        started = time.monotonic()
        cheetah.call(["repair", ours, "--nodes", spare.nbd])
        rate = size_bytes / MIB / (time.monotonic() - started)
        print(f"survive: {layout} repaired at {rate:.0f} MiB/s of the drive's content", flush=True)
    return figures


def measure(settings: Settings) -> list[Figure]:
    """Measures the part."""
    figures = []
    for layout, options, count, *bars in LAYOUTS:
        figures += measure_layout(settings, layout, options, count, bars)
    return figures
