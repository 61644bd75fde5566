"""The longest request while a node is killed or frozen, and the speed of the parity code."""

import os
import re
import signal
import threading
from typing import Any

from bench.harness.fio import Job
from bench.scratch import Scratch, write_random
from bench.settings import Settings
from bench.survive import drives
from bench.survive.drives import MIRROR, PARITY, Layout
from bench.tools import cheetah
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.process import run
from cheetah.bench.units import KIB, MIB

ALLOWED = "allowed"
DEPTH = 32
# The signal, and the longest that a request may take, in milliseconds.
LOSSES = {"killed": (signal.SIGKILL, 100.0), "frozen": (signal.SIGSTOP, 1000.0)}
CODE_GB_PER_S = {"P": 10.0, "P and Q": 5.0}


def longest_ms(layout: Layout, image: str, size_bytes: int, rw: str, how: signal.Signals, runtime_s: float) -> float:
    """Loses a node during a job and returns the longest request. Raises an error if any request fails."""
    with Scratch() as scratch:
        drive, nodes = drives.create_here(scratch, layout, size_bytes, image)
        server = cheetah.export(scratch, drive, writable=rw != "randread")
        pid = nodes[0].process.pid
        # A frozen node could not be stopped at the end.
        scratch.at_exit(_continue, pid)
        timer = threading.Timer(runtime_s / 2, os.kill, (pid, how))
        timer.start()
        try:
            result = server.run(Job(rw, 4 * KIB, size_bytes, DEPTH, runtime_s=runtime_s))
        finally:
            timer.cancel()
    return result.latency_max_us / 1000


def _continue(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        pass


def measure_losses(settings: Settings) -> list[Figure]:
    """Measures random reads, and random reads and writes, under the loss of a node."""
    figures = []
    size_bytes = 128 * MIB
    with Scratch() as scratch:
        image = write_random(os.path.join(scratch.ram_dir, "pattern"), size_bytes)
        for layout in (MIRROR, PARITY):
            for loss, (how, most_ms) in LOSSES.items():
                for rw, doing in (("randread", "reads"), ("randrw", "reads and writes")):
                    what = f"{layout.name}: a node {loss} during 4 KiB random {doing}, depth {DEPTH}: longest request"
                    longest: list[float] = []
                    errors = 0
                    for _ in range(settings.rounds):
                        try:
                            longest.append(longest_ms(layout, image, size_bytes, rw, how, settings.runtime_s))
                        except BenchError as error:
                            errors += 1
                            print(f"    {what}: {error}", flush=True)
                    print(f"  {what}: {longest} ms, {errors} runs with errors", flush=True)
                    samples: dict[str, list[float]] = {layout.name: longest, ALLOWED: [most_ms] * len(longest)}
                    key = f"survive-loss/{layout.name}-{loss}-{rw}"
                    figures.append(Figure(key, what, "ms", layout.name, samples if longest else {}, "lower", 1.0))
                    failed: dict[str, list[float]] = {layout.name: [float(errors)]}
                    figures.append(
                        Figure(f"{key}/errors", f"{what}: runs with errors", "runs", layout.name, failed, "lower")
                    )
    return figures


def measure_code() -> list[Figure]:
    """Measures the parity code of four data shards on one core, by its own example."""
    argv = ["cargo", "run", "--release", "--quiet", "--package", "cheetah-parity", "--example", "parity_speed"]
    argv[2:2] = ["--manifest-path", os.path.join(cheetah.ROOT, "Cargo.toml")]
    program: Any = os.environ.get("PARITY_SPEED")
    rates: dict[str, list[float]] = {kernel: [] for kernel in CODE_GB_PER_S}
    # The example itself reports the best of forty runs.
    printed = run([program] if program else argv, 900)
    for kernel, found in rates.items():
        line = re.search(rf"^ +4  {kernel} +([0-9.]+) +([0-9.]+)$", printed, re.MULTILINE)
        if not line:
            raise BenchError(f"parity_speed printed no rate of {kernel}: {printed[:400]}")
        found.append(float(line[1]))
    figures = []
    for kernel, found in rates.items():
        samples = {"cheetah-parity": found, ALLOWED: [CODE_GB_PER_S[kernel]] * len(found)}
        what = f"{kernel} of four shards of 64 KiB on one core"
        key = f"survive-loss/code-{kernel.replace(' ', '-')}"
        figures.append(Figure(key, what, "GB/s", "cheetah-parity", samples, "higher", 1.0))
    return figures


def measure(settings: Settings) -> list[Figure]:
    """Measures the part."""
    return measure_code() + measure_losses(settings)
