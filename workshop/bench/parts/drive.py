"""A striped drive over three nodes through its NBD export, against nbdkit in front of nbdkit."""

import os
from typing import Any

from bench.harness.figures import Metric, from_rounds
from bench.harness.fio import Job
from bench.harness.rounds import interleave
from bench.scratch import Scratch, write_random
from bench.settings import Settings
from bench.tools import cheetah, peers
from cheetah.bench.figure import Figure
from cheetah.bench.units import KIB, MIB, iec

NODES = 3
READER = "cheetah export"
WRITER = "cheetah export --writable"

# id, what, pattern, block, depth, bar.
READS = (
    ("seq-read-1m", "1 MiB sequential read, depth 16", "read", MIB, 16, 1.0),
    ("rand-read-4k-qd1", "4 KiB random read, depth 1", "randread", 4 * KIB, 1, 1.0),
    ("rand-read-4k-qd32", "4 KiB random read, depth 32", "randread", 4 * KIB, 32, 1.5),
)
WRITES = (
    ("seq-write-1m", "1 MiB sequential write, depth 16", "write", MIB, 16, 1.0),
    ("rand-write-4k-qd1", "4 KiB random write, depth 1", "randwrite", 4 * KIB, 1, 1.0),
    ("rand-write-4k-qd32", "4 KiB random write, depth 32", "randwrite", 4 * KIB, 32, 1.5),
)


def striped(scratch: Scratch, size_bytes: int, image: Any = None) -> Any:
    """Creates a striped drive over three local nodes; returns its file's path and the nodes."""
    nodes = [cheetah.node(scratch, size_bytes // NODES + MIB) for _ in range(NODES)]
    drive = cheetah.create(scratch, nodes, size_bytes, image)
    for node in nodes:
        node.wait_for_memory()
    return drive, nodes


def metrics(block_bytes: Any, bar: Any) -> Any:
    """Returns the metrics of a job, and its bar."""
    key, unit = ("iops", "requests/s") if block_bytes < MIB else ("rate", "MiB/s")
    return (
        Metric(key, "", unit, "higher", bar),
        Metric("p99", "p99 latency", "µs", "lower"),
        Metric("cpu", "CPU a request of the process in front", "µs", "lower"),
    )


def run(workloads: Any, ours: Any, peer: Any, settings: Settings) -> list[Figure]:
    """Interleaves each workload on ours and the peer."""
    figures = []
    for key, what, rw, block_bytes, depth, bar in workloads:
        job = Job(rw, block_bytes, settings.size_bytes, depth, runtime_s=settings.runtime_s)
        turns = {server.name: lambda server=server, job=job: server.measure(job) for server in (ours, peer)}
        results = interleave(what, settings.rounds, turns, "iops" if block_bytes < MIB else "rate")
        figures += from_rounds(f"drive/{key}", what, ours.name, metrics(block_bytes, bar), results)
    return figures


def measure(settings: Settings) -> list[Figure]:
    """Measures the part: reads of a drive made from an image through a read-only export, then writes to it through a
    writable one."""
    with Scratch() as scratch:
        pattern = write_random(os.path.join(scratch.ram_dir, "pattern"), settings.size_bytes)
        drive, _ = striped(scratch, settings.size_bytes, pattern)
        behind = peers.nbdkit_memory(scratch, settings.size_bytes)
        behind.fill(pattern)
        os.remove(pattern)
        peer = peers.nbdkit_nbd(scratch, behind)
        print(f"drive: {iec(settings.size_bytes)} of random bytes over {NODES} nodes, loopback TCP", flush=True)
        with scratch.child() as reading:
            figures = run(READS, cheetah.export(reading, drive, name=READER), peer, settings)
        with scratch.child() as writing:
            writer = cheetah.export(writing, drive, writable=True, name=WRITER)
            figures += run(WRITES, writer, peer, settings)
    return figures
