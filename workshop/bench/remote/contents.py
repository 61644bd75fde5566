"""Images of zeros, random bytes and files, 1 MiB to 10 GiB: made on a slow disk and a fast one, and sent to another machine; when
each end is done."""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import time
from typing import Any

from bench.harness.figures import Metric
from bench.harness.rounds import interleave, while_time_lasts
from bench.images.acquired import KINDS, AcquiredImage, Images
from bench.remote import disks
from bench.report import grid
from bench.scratch import Scratch
from bench.settings import Settings
from bench.tools import transfer
from cheetah.bench.figure import Figure
from cheetah.bench.process import run
from cheetah.bench.units import GIB, MIB, iec

PART = "transfer-contents"
RATE, RTT = "1gbit", "0us"
ROUNDS_MAX = 3
SIZES_BYTES = (MIB, GIB, 10 * GIB)
# The model keeps its bytes in memory, at both ends.
SLOW_DISK_BYTES_MAX = GIB
SIZES_BYTES_QUICK = (MIB, 4 * MIB)
# The slowest pipes would take hours.
SLOW_PIPES = ("gzip | nc", "bzip2 | nc")
SLOW_PIPE_BYTES_MAX = GIB
METHODS = ("auto", "none", "lz4", "zstd")
# What `auto` must reach of the best fixed method.
BAR = 0.95
CREATED = (Metric("seconds", "written and flushed", "s", "lower"),)
SENT = (Metric("sender", "the sender is done", "s", "lower"), Metric("seconds", "the receiver is done", "s", "lower"))


def created(image: AcquiredImage, folder: str) -> dict[str, float]:
    """Copies an image that is in memory to a disk and flushes it, as `dd` makes it: returns the seconds."""
    path = os.path.join(folder, "made.raw")
    image.cache(warm=True)
    start = time.perf_counter()
    try:
        run(["dd", f"if={image.path}", f"of={path}", "bs=1M", "conv=fsync", "status=none"], transfer.LIMIT_S)
        return {"seconds": time.perf_counter() - start}
    finally:
        os.remove(path)


def placed(image: AcquiredImage, folder: str) -> AcquiredImage:
    """Returns the image on a disk; it is copied there unless it already is."""
    path = os.path.join(folder, os.path.basename(image.path))
    if path != image.path:
        shutil.copyfile(image.path, path)
        os.sync()
    return AcquiredImage(path, image.size_bytes, image.md5)


def sent(scratch: Scratch, between: Any, image: AcquiredImage, how: Any, folder: str) -> dict[str, float]:
    """Sends a cold image; `how` is a pipe, or a method of ours."""
    image.cache(warm=False)
    send = transfer.by_pipe if isinstance(how, transfer.Pipe) else transfer.by_cheetah
    return dict(send(scratch, between, how, image, folder))


def contenders(scratch: Scratch, between: Any, image: AcquiredImage, folder: str) -> dict[str, Any]:
    """Returns all ways to send an image."""
    ways: dict[str, Any] = {pipe.name: pipe for pipe in transfer.PIPES}
    if image.size_bytes > SLOW_PIPE_BYTES_MAX:
        ways = {name: pipe for name, pipe in ways.items() if name not in SLOW_PIPES}
    ways |= {f"cheetah acquire ({method})": method for method in METHODS}
    return {name: functools.partial(sent, scratch, between, image, how, folder) for name, how in ways.items()}


def automatic(group: str, column: str, results: dict[str, list[dict[str, float]]], note: str) -> Figure:
    """Returns the figure of `auto` beside the fixed methods."""
    rates = {
        name: [sample["rate"] for sample in found]
        for name, found in results.items()
        if name.startswith("cheetah acquire")
    }
    name = f"{PART}/auto-{group}-{column}".replace("/s", "")
    return Figure(
        name,
        f"{group}, {column}: auto beside the fixed methods",
        "MiB/s",
        "cheetah acquire (auto)",
        rates,
        "higher",
        BAR,
        note,
    )


def measure_image(disk: str, kind: str, size_bytes: int, settings: Settings) -> list[Figure]:
    """Returns the figures of one image that is made on, sent from and received on one disk."""
    rounds = min(settings.rounds, ROUNDS_MAX)
    note = (
        f"1 Gbit/s; both disks of a transfer are alike. Images are cold (caches dropped) and sent in up to {rounds} rounds; time counts from the "
        "sender's start. A pipe's receiver hashes (MD5) while it writes and flushes. The agent of `cheetah acquire` only answers, so both of its ends are done when "
        f"the image is written, flushed and hashed. {', '.join(SLOW_PIPES)}: up to {iec(SLOW_PIPE_BYTES_MAX)}. The slow disk is a model in real time; it keeps its "
        f"bytes in memory, so it has images of up to {iec(SLOW_DISK_BYTES_MAX)}. Mixed content of 1 MiB is a piece of a file system. Images for which this machine's disk has no room are left out."
    )
    column = f"{kind}, {iec(size_bytes)}"
    with Scratch() as scratch, transfer.ends(scratch, RATE, RTT) as between:
        # The image, and what is received; a mixed image is made of a copy of its files.
        copies = 3 if kind == "mixed" else 2
        if not disks.has_room(scratch, disk, copies * size_bytes):
            print(f"  {column}: left out, because {scratch.disk_dir} has no room for {copies} of them", flush=True)
            return []
        here = disks.directory(scratch, disk, size_bytes)
        there = disks.directory(scratch, disk, size_bytes)
        master = Images(scratch).get(kind, size_bytes)
        turns = {"dd": functools.partial(created, master, there)}
        results = interleave(f"created: {disk}, {column}", rounds, turns, "seconds")
        figures = grid.figures(PART, f"Creating an image on {disk}", column, results, CREATED, note)
        image = placed(master, here)
        turns = contenders(scratch, between, image, there)
        results = interleave(f"{disk}, {column}", rounds, turns, ("sender", "seconds"))
        group = f"Between two machines, {disk}"
        figures += grid.figures(PART, group, column, results, SENT, note)
        return [*figures, automatic(group, column, results, note)]


def images(settings: Settings) -> list[tuple[str, str, int]]:
    """Returns the disk, the kind and the size of each image: small ones first, as they take the least time."""
    sizes = SIZES_BYTES_QUICK if settings.quick else SIZES_BYTES
    found = itertools.product(sizes, disks.DISKS, KINDS)
    return [
        (disk, kind, size_bytes)
        for size_bytes, disk, kind in found
        if disk == disks.FAST or size_bytes <= SLOW_DISK_BYTES_MAX
    ]


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures."""
    found = images(settings)
    print(f"{PART}: {len(found)} images on {', '.join(disks.DISKS)}", flush=True)
    return while_time_lasts(functools.partial(measure_image, *image, settings) for image in found)
