"""E01 images: written beside ewfacquire, and read through a mount beside ewfmount and xmount."""

import os
import re
from typing import Any

from bench.harness import fio
from bench.harness.figures import Metric, from_rounds
from bench.harness.fio import Job
from bench.harness.process import measured
from bench.harness.rounds import interleave
from bench.images.acquired import Images
from bench.scratch import Scratch, drop_caches
from bench.settings import Settings
from bench.tools import cheetah, peers
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.units import GIB, KIB, MIB, iec

WRITER = "ewfacquire -c fast"
OURS_MD5 = "cheetah acquire --hash md5"
OURS_ALL = "cheetah acquire, all four hashes"
MOUNT = "cheetah mount"

# id, what, pattern, block.
READS = (
    ("seq-read-1m", "sequential read in 1 MiB records", "read", MIB),
    ("rand-read-4k", "4 KiB random read", "randread", 4 * KIB),
)


def ewfacquire(image: Any, stem: str) -> Any:
    """Writes STEM.E01 with ewfacquire, flushed; returns its path, MD5, seconds and processor seconds."""
    line = 'ewfacquire -u -c fast -f encase6 -m fixed -M physical -t "$1" "$2" && sync "$1.E01"'
    seconds, cpu_s, printed = measured(["bash", "-c", line, "ewfacquire", stem, image.path])
    found = re.search(r"MD5 hash calculated over data:\s*([0-9a-f]{32})", printed)
    return f"{stem}.E01", found and found.group(1), seconds, cpu_s


def acquire(image: Any, stem: str, hashes: str) -> Any:
    """Does the same with `cheetah acquire`."""
    path = f"{stem}.E01"
    argv = cheetah.acquire_argv(image.path, path, hashes, ["--level", "fast"])
    seconds, cpu_s, printed = measured(argv)
    return path, cheetah.acquired(printed)["hashes"]["md5"], seconds, cpu_s


def write(scratch: Scratch, image: Any, how: Any, *arguments: Any) -> dict[str, Any]:
    """Writes one E01; returns its rate, cost, and size."""
    with scratch.child() as turn:
        image.cache(warm=True)
        path, md5, seconds, cpu_s = how(image, os.path.join(turn.disk_dir, "image"), *arguments)
        if md5 != image.md5:
            raise BenchError(f"{path}: the writer's MD5 is {md5}, not {image.md5}")
        size_mib = os.path.getsize(path) / MIB
        return {"rate": image.size_bytes / MIB / seconds, "cpu": cpu_s, "size": size_mib}


def measure_writing(scratch: Scratch, image: Any, settings: Settings) -> list[Figure]:
    """Returns the figures of writing."""
    turns = {
        OURS_MD5: lambda: write(scratch, image, acquire, "md5"),
        OURS_ALL: lambda: write(scratch, image, acquire, "all"),
        WRITER: lambda: write(scratch, image, ewfacquire),
    }
    results = interleave("E01 writing", settings.rounds, turns, ("rate", "cpu"))
    figures = []
    for key, what, name, bar in (
        ("md5", "E01 writing, fast, MD5", OURS_MD5, 4.5),
        ("all", "E01 writing, fast, all four hashes (ewfacquire: MD5)", OURS_ALL, 4.5),
    ):
        tells = (
            Metric("rate", "", "MiB/s", "higher", bar),
            Metric("size", "size of the file", "MiB", "lower", 1.03),
            Metric("cpu", "processor time", "s", "lower"),
        )
        figures += from_rounds(f"ewf/write-{key}", what, name, tells, {one: results[one] for one in (name, WRITER)})
    return figures


def cold(scratch: Scratch, attach: Any, job: Any) -> dict[str, Any]:
    """Mounts, drops all caches, runs the job on the file, unmounts."""
    with scratch.child() as turn:
        path = attach(turn)
        drop_caches()
        result = fio.on_file(job, path)
        return {"rate": result.bytes_per_s / MIB, "iops": result.requests_per_s}


def measure_reading(scratch: Scratch, image: Any, settings: Settings) -> list[Figure]:
    """Returns the figures of reading an E01 written by ewfacquire, through mounts."""
    path, _, _, _ = ewfacquire(image, os.path.join(scratch.disk_dir, "reading"))
    attach = {
        MOUNT: lambda turn: cheetah.mount(turn, path)[1],
        "ewfmount": lambda turn: peers.ewfmount(turn, path),
        "xmount --in ewf": lambda turn: peers.xmount(turn, path, "ewf"),
        "xmount --in aewf": lambda turn: peers.xmount(turn, path, "aewf"),
    }
    figures = []
    for key, what, rw, block_bytes in READS:
        small = block_bytes < MIB
        job = Job(rw, block_bytes, image.size_bytes, runtime_s=settings.runtime_s if small else None, loops=False)
        turns = {name: lambda how=how, job=job: cold(scratch, how, job) for name, how in attach.items()}
        main = "iops" if small else "rate"
        tells = (Metric(main, "", "requests/s" if small else "MiB/s", "higher", 3.0),)
        results = interleave(what, settings.rounds, turns, main)
        figures += from_rounds(f"ewf/{key}", f"E01 through a mount: {what}", MOUNT, tells, results)
    return figures


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures."""
    size_bytes = 64 * MIB if settings.quick else GIB
    with Scratch() as scratch:
        image = Images(scratch).get("mixed", size_bytes)
        print(f"ewf: a real file system of {iec(size_bytes)}; about a minute a round", flush=True)
        return measure_writing(scratch, image, settings) + measure_reading(scratch, image, settings)
