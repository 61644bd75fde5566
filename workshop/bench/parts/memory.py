"""Peak memory of the client, independent of the drive's size, and of the node."""

import os
from typing import Any

from bench.harness import fio
from bench.harness.fio import Job
from bench.harness.process import memory_peak_bytes
from bench.parts.drive import NODES, striped
from bench.scratch import Scratch, drop_caches, write_random
from bench.settings import Settings
from bench.tools import cheetah
from cheetah.bench.figure import Figure
from cheetah.bench.units import GIB, KIB, MIB, iec

PREFETCH_BUDGET_BYTES = 64 * MIB
ALLOWANCE_BYTES = 64 * MIB


def _figure(key: str, what: str, used: Any, allowed: Any) -> Figure:
    """Returns peaks beside their limits, both in bytes, one per process."""
    samples = {"cheetah": [value / MIB for value in used], "allowed": [value / MIB for value in allowed]}
    print(f"  {what:<64} {max(samples['cheetah']):>7.0f} MiB of {samples['allowed'][0]:.0f} allowed", flush=True)
    return Figure(f"memory/{key}", f"{what}: peak resident", "MiB", "cheetah", samples, "lower", 1.0)


def clients(drive: str, size_bytes: int, runtime_s: Any) -> Any:
    """Returns the peaks of a mount and an export after sequential and random reading at high queue depth."""
    random = {"runtime_s": runtime_s, "loops": False}
    with Scratch() as turn:
        mount, path = cheetah.mount(turn, drive)
        drop_caches()
        fio.on_file(Job("read", MIB, size_bytes), path)
        drop_caches()
        fio.on_file(Job("randread", 4 * KIB, size_bytes, threads=8, **random), path)
        mount_peak_bytes = memory_peak_bytes(mount)
    with Scratch() as turn:
        export = cheetah.export(turn, drive)
        for job in (Job("read", MIB, size_bytes, 16), Job("randread", 4 * KIB, size_bytes, 32, **random)):
            export.measure(job)
        # Several clients at once, each with large requests in flight.
        export.measure(Job("randread", MIB, size_bytes, 16, threads=4, **random))
        return mount_peak_bytes, memory_peak_bytes(export.processes[0])


def writer(drive: str, size_bytes: int) -> Any:
    """Returns the peak of a writable export after one pass of writing."""
    with Scratch() as turn:
        export = cheetah.export(turn, drive, writable=True)
        export.measure(Job("write", MIB, size_bytes, 16))
        return memory_peak_bytes(export.processes[0])


def measure_size(size_bytes: int, settings: Settings) -> Any:
    """Returns the figures for a drive of that size."""
    allowed = PREFETCH_BUDGET_BYTES + ALLOWANCE_BYTES
    size = iec(size_bytes)
    with Scratch() as scratch:
        image = write_random(os.path.join(scratch.ram_dir, "image"), size_bytes)
        drive, nodes = striped(scratch, size_bytes, image)
        os.remove(image)
        mount, export = clients(drive, size_bytes, settings.runtime_s)
        written = writer(drive, size_bytes)
        peaks = [memory_peak_bytes(node.process) for node in nodes]
        return [
            _figure(f"mount-{size}", f"cheetah mount, drive of {size}, read", [mount], [allowed]),
            _figure(f"export-{size}", f"cheetah export, drive of {size}, read", [export], [allowed]),
            _figure(f"export-writable-{size}", f"cheetah export --writable, drive of {size}", [written], [allowed]),
            _figure(
                f"node-{size}",
                f"cheetah node, the largest of {NODES} that hold {size}",
                [max(peaks)],
                [nodes[0].lent_bytes + ALLOWANCE_BYTES],
            ),
        ]


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures."""
    sizes = (64 * MIB, 256 * MIB) if settings.quick else (GIB, 4 * GIB)
    print("memory: peaks after sequential and random reading, and writing", flush=True)
    return [figure for size_bytes in sizes for figure in measure_size(size_bytes, settings)]
