"""One node against nbdkit memory and qemu-nbd, over loopback TCP."""

import functools
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

OURS = "cheetah node"

# id, what, pattern, block, depth, bar on throughput, bar on processor time per request.
WORKLOADS = (
    ("seq-read-1m-qd16", "1 MiB sequential read, depth 16", "read", MIB, 16, 1.0, None),
    ("seq-write-1m-qd16", "1 MiB sequential write, depth 16", "write", MIB, 16, 1.0, None),
    ("seq-read-1m-qd1", "1 MiB sequential read, depth 1", "read", MIB, 1, 1.0, None),
    ("seq-write-1m-qd1", "1 MiB sequential write, depth 1", "write", MIB, 1, 1.0, None),
    ("rand-read-4k-qd1", "4 KiB random read, depth 1", "randread", 4 * KIB, 1, 1.0, None),
    ("rand-read-4k-qd32", "4 KiB random read, depth 32", "randread", 4 * KIB, 32, 1.3, 0.4),
    ("rand-write-4k-qd32", "4 KiB random write, depth 32", "randwrite", 4 * KIB, 32, 1.4, 0.4),
)

# id, what, from, to, connections.
COPIES = (
    ("copy-out-1", "nbdcopy out, one connection", "uri", "null:", 1),
    ("copy-in-1", "nbdcopy in, one connection", "pattern", "uri", 1),
    ("copy-out-4", "nbdcopy out, four connections", "uri", "null:", 4),
    ("copy-in-4", "nbdcopy in, four connections", "pattern", "uri", 4),
)


def metrics(block_bytes: Any, rate_bar: Any, cpu_bar: Any) -> Any:
    """Returns the metrics of a job on a server, and their bars."""
    key, unit = ("iops", "requests/s") if block_bytes < MIB else ("rate", "MiB/s")
    return (
        Metric(key, "", unit, "higher", rate_bar),
        Metric("p99", "p99 latency", "µs", "lower", 1.0),
        Metric("cpu", "server CPU a request", "µs", "lower", cpu_bar),
    )


def contenders(scratch: Scratch, size_bytes: int) -> Any:
    """Returns the running servers, each holding the same random bytes."""
    pattern = write_random(os.path.join(scratch.ram_dir, "pattern"), size_bytes)
    servers = [
        cheetah.node(scratch, size_bytes).export("bench", size_bytes),
        peers.nbdkit_memory(scratch, size_bytes),
        peers.qemu_nbd(scratch, size_bytes),
    ]
    for server in servers:
        server.fill(pattern)
    return servers, pattern


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures."""
    figures = []
    with Scratch() as scratch:
        servers, pattern = contenders(scratch, settings.size_bytes)
        print(f"node: {iec(settings.size_bytes)} of random bytes on each server, loopback TCP", flush=True)
        for key, what, rw, block_bytes, depth, rate_bar, cpu_bar in WORKLOADS:
            job = Job(rw, block_bytes, settings.size_bytes, depth, runtime_s=settings.runtime_s)
            turns = {server.name: functools.partial(server.measure, job) for server in servers}
            results = interleave(what, settings.rounds, turns, "iops" if block_bytes < MIB else "rate")
            figures += from_rounds(f"node/{key}", what, OURS, metrics(block_bytes, rate_bar, cpu_bar), results)
        for key, what, source, target, connections in COPIES[:2] if settings.quick else COPIES:
            source = pattern if source == "pattern" else source
            turns = {
                server.name: functools.partial(server.copy, source, target, settings.size_bytes, connections)
                for server in servers
            }
            results = interleave(what, settings.rounds, turns)
            figures += from_rounds(f"node/{key}", what, OURS, (Metric("rate", "", "MiB/s", "higher", 1.0),), results)
    return figures
