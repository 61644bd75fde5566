"""A striped drive over three nodes through its mount, against nbdfuse on nbdkit memory."""

import os
from typing import Any

from bench.harness import fio
from bench.harness.figures import Metric, from_rounds
from bench.harness.fio import Job
from bench.harness.process import cpu_s
from bench.harness.rounds import interleave
from bench.parts.drive import NODES, striped
from bench.scratch import Scratch, drop_caches, write_random
from bench.settings import Settings
from bench.tools import cheetah, peers
from cheetah.bench.figure import Figure
from cheetah.bench.units import KIB, MIB, iec

OURS = "cheetah mount"
PEER = "nbdfuse on nbdkit memory"

# id, what, pattern, block, threads, bar. Sequential: one pass over all of it. Random: until the time is up, each thread
# in its own part, no block twice, so no cache can answer.
WORKLOADS = (
    ("seq-read-1m", "sequential read in 1 MiB records", "read", MIB, 1, 3.0),
    ("rand-read-4k-1", "4 KiB random read, one thread", "randread", 4 * KIB, 1, 1.5),
    ("rand-read-4k-8", "4 KiB random read, eight threads", "randread", 4 * KIB, 8, 1.5),
)


def cold(scratch: Scratch, attach: Any, job: Any) -> dict[str, Any]:
    """Mounts, drops all caches, runs the job on the file, unmounts."""
    with scratch.child() as turn:
        process, path = attach(turn)
        drop_caches()
        before_s = cpu_s(process)
        result = fio.on_file(job, path)
        return {
            "rate": result.bytes_per_s / MIB,
            "iops": result.requests_per_s,
            "p99": result.latency_p99_us,
            "cpu": (cpu_s(process) - before_s) / result.requests * 1e6,
        }


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures."""
    figures = []
    with Scratch() as scratch:
        pattern = write_random(os.path.join(scratch.ram_dir, "pattern"), settings.size_bytes)
        drive, _ = striped(scratch, settings.size_bytes, pattern)
        behind = peers.nbdkit_memory(scratch, settings.size_bytes)
        behind.fill(pattern)
        os.remove(pattern)
        print(f"fuse: {iec(settings.size_bytes)} of random bytes over {NODES} nodes, mounted", flush=True)
        attach = {OURS: lambda turn: cheetah.mount(turn, drive), PEER: lambda turn: peers.nbdfuse(turn, behind)}
        for key, what, rw, block_bytes, threads, bar in WORKLOADS:
            small = block_bytes < MIB
            runtime_s = settings.runtime_s if small else None
            job = Job(rw, block_bytes, settings.size_bytes, threads=threads, runtime_s=runtime_s, loops=False)
            turns = {name: lambda how=how, job=job: cold(scratch, how, job) for name, how in attach.items()}
            main = "iops" if small else "rate"
            results = interleave(what, settings.rounds, turns, main)
            tells = (
                Metric(main, "", "requests/s" if small else "MiB/s", "higher", bar),
                Metric("p99", "p99 latency", "µs", "lower"),
                Metric("cpu", "CPU a request of the mounting process", "µs", "lower"),
            )
            figures += from_rounds(f"fuse/{key}", what, OURS, tells, results)
    return figures
