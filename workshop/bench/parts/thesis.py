"""Table 5.1 of the thesis and its applications, a drive beside the machine's own disk with cold caches."""

import functools
import os
import shutil
from typing import Any

from bench.harness import fio
from bench.harness.figures import Metric, from_rounds
from bench.harness.fio import Job
from bench.harness.process import timed
from bench.harness.rounds import interleave
from bench.images.filesystem import ext4_on, image_of
from bench.parts.drive import NODES
from bench.scratch import Scratch, drop_caches
from bench.settings import Settings
from bench.tools import cheetah, pattern
from cheetah.bench import tree
from cheetah.bench.figure import Figure
from cheetah.bench.process import run
from cheetah.bench.storage.steps.carving import SCALPEL_CONFIG
from cheetah.bench.units import GIB, KIB, MIB, iec

OURS = "drive, ext4 on its mount"
IMAGE_OURS = "image on the drive, mounted"
DISK = "this machine's disk"
RECORD_BYTES = 4 * KIB
APPLICATION_ROUNDS_MAX = 3
# On one machine both sides share its processors, so that tar may take a little longer on the drive.
TAR_BAR = 1.2

# id, what, the thesis's ratio of drive to disk.
TABLE = (
    ("write", "write", 3.84),
    ("rewrite", "rewrite", 3.59),
    ("read", "read", 3.34),
    ("reread", "reread", 3.34),
    ("random-read", "random read", 22.9),
    ("random-write", "random write", 21.2),
    ("backward", "backward read", 3.59),
    ("strided", "strided read", 1.49),
)


def table(
    directory: str, size_bytes: int, runtime_s: Any, record_bytes: int = RECORD_BYTES, direct: bool = False
) -> dict[str, float]:
    """Measures all of table 5.1 on one file in the directory, in MiB/s, reading with cold caches; with `direct`, without
    the page cache."""
    path = os.path.join(directory, "table.dat")
    with open(path, "wb") as file:
        file.truncate(size_bytes)
    extra = ("--direct=1",) if direct else ()
    sequential = Job("write", record_bytes, size_bytes, fsync_at_end=True, extra=extra)
    limited = {"runtime_s": runtime_s, "loops": False, "extra": extra}
    rates = {}

    def job(key: str, job: Any) -> None:
        drop_caches()
        rates[key] = fio.on_file(job, path).bytes_per_s / MIB

    def read(key: str, name: str) -> None:
        drop_caches()
        rates[key] = pattern.read(path, name, record_bytes, size_bytes, advice="direct" if direct else "none")

    job("write", sequential)
    job("rewrite", sequential)
    read("read", "forward")
    read("reread", "forward")
    job("random-read", Job("randread", record_bytes, size_bytes, **limited))
    job("random-write", Job("randwrite", record_bytes, size_bytes, fsync_at_end=True, **limited))
    read("backward", "backward")
    read("strided", "strided")
    os.remove(path)
    return rates


def tar(directory: str) -> dict[str, Any]:
    """Returns the seconds for tar to archive the tree in the directory into a file beside it, until written."""
    archive = os.path.join(directory, "archive.tar")
    drop_caches()
    seconds = timed(["tar", "-C", os.path.join(directory, "tree"), "-cf", archive, "."])
    seconds += timed(["sync", archive])
    os.remove(archive)
    return {"seconds": seconds}


def on_image(scratch: Scratch, image: Any, argv_of: Any) -> dict[str, Any]:
    """Returns the seconds for a tool on the image, with its output in a new directory on disk."""
    out = os.path.join(scratch.disk_dir, scratch.unique("tool"))
    os.mkdir(out)
    drop_caches()
    seconds = timed(argv_of(image, out))
    shutil.rmtree(out)
    return {"seconds": seconds}


def measure_table(sides: Any, size_bytes: int, settings: Settings) -> list[Figure]:
    """Returns the figures of table 5.1."""
    turns = {
        name: lambda directory=directory: table(directory, size_bytes, settings.runtime_s)
        for name, directory in sides.items()
    }
    results = interleave("table 5.1:", settings.rounds, turns, [key for key, _, _ in TABLE])
    metrics = [Metric(key, f"{what} (thesis: {thesis} ×)", "MiB/s") for key, what, thesis in TABLE]
    return from_rounds("thesis/table", "4 KiB records", OURS, metrics, results)


def measure_applications(scratch: Scratch, sides: Any, images: dict[str, str], settings: Settings) -> list[Figure]:
    """Returns the figures of tar, sorter, scalpel and md5sum."""
    rounds = min(settings.rounds, APPLICATION_ROUNDS_MAX)
    tools = (
        ("sorter", lambda image, out: ["sorter", "-m", "/", "-d", out, "-f", "ext4", image]),
        (
            "scalpel",
            lambda image, out: ["scalpel", "-c", str(SCALPEL_CONFIG), "-o", os.path.join(out, "carved"), image],
        ),
        ("md5sum", lambda image, out: ["md5sum", image]),
    )
    seconds = (Metric("seconds", "", "s", "lower"),)
    turns = {name: functools.partial(tar, directory) for name, directory in sides.items()}
    figures = from_rounds(
        "thesis/tar",
        "tar, a tree into an archive beside it",
        OURS,
        (Metric("seconds", "", "s", "lower", TAR_BAR),),
        interleave("tar", rounds, turns, "seconds"),
    )
    for key, argv_of in tools:
        turns = {name: functools.partial(on_image, scratch, image, argv_of) for name, image in images.items()}
        results = interleave(key, rounds, turns, "seconds")
        figures += from_rounds(f"thesis/{key}", f"{key} on an image", IMAGE_OURS, seconds, results)
    return figures


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures."""
    file_bytes, disk_bytes, files, image_bytes = 512 * MIB, 5 * GIB // 2, 500, GIB
    if settings.quick:
        file_bytes, disk_bytes, files, image_bytes = 32 * MIB, 288 * MIB, 50, 96 * MIB
    with Scratch() as scratch:
        source = os.path.join(scratch.disk_dir, "tree")
        tree_bytes = tree.make(source, files, image_bytes * 3 // 4)
        image = image_of(scratch, source, image_bytes)
        nodes = [cheetah.node(scratch, (disk_bytes + image_bytes) // NODES + 2 * MIB) for _ in range(NODES)]
        _, raw = cheetah.mount(scratch, cheetah.create(scratch, nodes, disk_bytes), writable=True)
        on_drive = ext4_on(scratch, raw)
        run(["cp", "-r", source, on_drive])
        run(["sync"])
        _, loaded = cheetah.mount(scratch, cheetah.create(scratch, nodes, image=image))
        files_mib = tree_bytes // MIB
        print(f"thesis: a file of {iec(file_bytes)}; a tree and an image with {files_mib} MiB of files", flush=True)
        sides = {OURS: on_drive, DISK: scratch.disk_dir}
        figures = measure_table(sides, file_bytes, settings)
        return figures + measure_applications(scratch, sides, {IMAGE_OURS: loaded, DISK: image}, settings)
