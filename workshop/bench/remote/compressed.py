"""Images compressed before they are sent: sizes, times and whether two runs make the same file; then sent by a pipe that unpacks, and
acquired straight from the compressed file; and what the buffers between sender and receiver hold."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import re
import threading
import time
from collections.abc import Callable
from typing import Any

from bench.harness.figures import Metric
from bench.harness.process import timed
from bench.harness.rounds import interleave, while_time_lasts
from bench.images.acquired import KINDS, AcquiredImage, Images
from bench.remote import disks
from bench.remote.contents import placed
from bench.report import grid
from bench.scratch import Scratch
from bench.settings import Settings
from bench.tools import transfer
from bench.tools.transfer import Pipe
from cheetah.bench.figure import Figure
from cheetah.bench.process import run
from cheetah.bench.units import GIB, KIB, MIB, iec

PART = "transfer-compressed"
LINKS = {"1 Gbit/s": ("1gbit", "0us"), "100 Mbit/s, 20 ms round trip": ("100mbit", "20ms")}
# A minute and a half of the slow link for a GiB is too long for a dozen rows.
SENT_BYTES_MAX = dict(zip(LINKS, (GIB, 256 * MIB), strict=True))
ROUNDS_MAX = 3
# A small file system needs 4 MiB.
SIZE_BYTES, SIZE_BYTES_QUICK = GIB, 4 * MIB
SAMPLED_EVERY_S = 0.01
COMPRESSED = (
    Metric("seconds", "compressing", "s", "lower"),
    Metric("bytes", "size", "B", "lower"),
    Metric("equal", "equal in two runs (1: yes)", ""),
)
SENT = (Metric("sender", "the sender is done", "s", "lower"), Metric("seconds", "the receiver is done", "s", "lower"))
BUFFERED = (
    *SENT,
    Metric("unsent", "most unacknowledged at the sender", "KiB", "lower"),
    Metric("unread", "most unread at the receiver", "KiB", "lower"),
)
QUEUES = re.compile(r"^ESTAB\s+(\d+)\s+(\d+)", re.M)


@dataclasses.dataclass(frozen=True)
class Compressor:
    """A program that compresses FILE to FILE.SUFFIX."""

    name: str
    suffix: str
    options: tuple[str, ...] = ()

    def argv(self, path: str) -> list[str]:
        """Returns the command that compresses a file to its standard output."""
        return [self.name, *self.options, "-c", path]

    @property
    def unpack(self) -> str:
        """Returns the command that unpacks a stream."""
        return f"{self.name} -dc"


COMPRESSORS = (
    Compressor("gzip", "gz"),
    Compressor("bzip2", "bz2"),
    Compressor("xz", "xz", ("-1",)),
    Compressor("zstd", "zst", ("-q",)),
)


def compressed(compressor: Compressor, image: AcquiredImage, folder: str) -> dict[str, float]:
    """Compresses a cold image twice to a disk, flushed, with another time of change in between: gzip stores it in its file."""
    made = [os.path.join(folder, f"made-{number}.{compressor.suffix}") for number in range(2)]
    seconds = 0.0
    try:
        for number, path in enumerate(made):
            os.utime(image.path, (0, 1_000_000_000 + number))
            image.cache(warm=False)
            line = 'out="$1"; shift; "$@" >"$out" && sync "$out"'
            took_s = timed(["bash", "-c", line, "compress", path, *compressor.argv(image.path)], transfer.LIMIT_S)
            seconds = seconds or took_s
        equal = transfer.md5_of(made[0]) == transfer.md5_of(made[1])
        return {"seconds": seconds, "bytes": os.path.getsize(made[0]), "equal": float(equal)}
    finally:
        for path in made:
            if os.path.exists(path):
                os.remove(path)


def measure_compressing(disk: str, kind: str, settings: Settings, size_bytes: int) -> list[Figure]:
    """Returns the figures of compressing an image on one disk."""
    rounds = min(settings.rounds, ROUNDS_MAX)
    note = (
        f"{iec(size_bytes)}, cold, read from and written to the same disk, flushed, in up to {rounds} rounds; xz with -1. Two runs are of the same image "
        "with another time of change: gzip stores that time in its file (and bzip2 stores none), so that its files differ; `gzip -n` stores none. The slow "
        "disk is a model in real time."
    )
    with Scratch() as scratch:
        folder = disks.directory(scratch, disk, 3 * size_bytes)
        image = placed(Images(scratch).get(kind, size_bytes), folder)
        rows = {one.name: one for one in COMPRESSORS}
        rows["gzip -n"] = Compressor("gzip", "gz", ("-n",))
        turns = {name: functools.partial(compressed, one, image, folder) for name, one in rows.items()}
        results = interleave(f"{disk}, {kind}", rounds, turns, "seconds")
    return grid.figures(PART, f"Compressing on {disk}", kind, results, COMPRESSED, note)


def _by_pipe(scratch: Scratch, between: Any, image: AcquiredImage, pipe: Pipe, sent_file: str) -> dict[str, float]:
    image.cache(warm=True)
    return dict(transfer.by_pipe(scratch, between, pipe, image, sent_file=sent_file))


def _by_cheetah(scratch: Scratch, between: Any, image: AcquiredImage, sent_file: str | None = None) -> dict[str, float]:
    image.cache(warm=True)
    return dict(transfer.by_cheetah(scratch, between, "auto", image, sent_file=sent_file))


def measure_sending(link: str, kind: str, settings: Settings, size_bytes: int) -> list[Figure]:
    """Returns the figures of sending files that were compressed before, beside compressing in flight."""
    rounds = min(settings.rounds, ROUNDS_MAX)
    size_bytes = min(size_bytes, SENT_BYTES_MAX[link])
    note = (
        f"{iec(size_bytes)} over {link}, compressed before by the program named (its time is in the tables above), warm, in up to {rounds} rounds; received on this "
        "machine's disk, hashed (MD5) and flushed. `acquire` reads the compressed file from an agent that serves its bytes, and decompresses it twice, first to check it and to "
        "learn its size; `in flight` starts from the image."
    )
    with Scratch() as scratch, transfer.ends(scratch, *LINKS[link]) as between:
        image = Images(scratch).get(kind, size_bytes)
        turns: dict[str, Any] = {}
        for one in COMPRESSORS:
            file = packed(one, image)
            pipe = Pipe(f"cat .{one.suffix} | nc", "cat {image}", one.unpack)
            turns[pipe.name] = functools.partial(_by_pipe, scratch, between, image, pipe, file)
            turns[f"cheetah acquire of .{one.suffix}"] = functools.partial(_by_cheetah, scratch, between, image, file)
        turns["in flight: cheetah acquire"] = functools.partial(_by_cheetah, scratch, between, image)
        for pipe in transfer.PIPES[3:]:
            turns[f"in flight: {pipe.name}"] = functools.partial(_by_pipe, scratch, between, image, pipe, image.path)
        results = interleave(f"{link}, {kind}", rounds, turns, ("sender", "seconds"))
    return grid.figures(PART, f"Sending over {link}", kind, results, SENT, note)


def packed(compressor: Compressor, image: AcquiredImage) -> str:
    """Compresses an image into a file beside it; returns its path."""
    file = f"{image.path}.{compressor.suffix}"
    line = 'out="$1"; shift; "$@" >"$out"'
    run(["bash", "-c", line, "compress", file, *compressor.argv(image.path)], transfer.LIMIT_S)
    return file


class QueueWatch:
    """Samples the queues of the sockets of a transfer until it is left."""

    def __init__(self, between: Any, port: int) -> None:
        self._commands = (
            (between.sender, f"dport = :{port}", 2),
            (between.receiver, f"sport = :{port}", 1),
        )
        self.most_bytes = [0, 0]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> QueueWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._over.wait(SAMPLED_EVERY_S):
            for number, (enter, which, field) in enumerate(self._commands):
                shown = run(enter(["ss", "--no-header", "--tcp", which]), check=False)
                found = [int(match[field]) for match in QUEUES.finditer(shown)]
                self.most_bytes[number] = max([self.most_bytes[number], *found])


def buffered(scratch: Scratch, between: Any, image: AcquiredImage, pipe: Pipe, file: str) -> dict[str, float]:
    """Sends a file, and watches what waits in the sockets."""
    with QueueWatch(between, transfer.PORT) as watch:
        sample = _by_pipe(scratch, between, image, pipe, file)
        # The last state is short: once more, so that a very short transfer was seen at all.
        time.sleep(SAMPLED_EVERY_S)
    unsent, unread = (most / KIB for most in watch.most_bytes)
    return {**sample, "unsent": unsent, "unread": unread}


def measure_buffers(settings: Settings, size_bytes: int) -> list[Figure]:
    """Returns what the buffers hold while an image of zeros is unpacked at the receiver: why a sender of gzip waits."""
    rounds = min(settings.rounds, ROUNDS_MAX)
    note = (
        "Zeros, compressed before, over 1 Gbit/s: the compressed file by bzip2 fits into the buffers of the two sockets and of a pipe (64 KiB), so the sender "
        "is done at once; that by gzip does not, and its sender waits for the receiver to unpack. A file of random bytes of the same size is read as fast as it "
        f"comes. The queues of both sockets were sampled every {SAMPLED_EVERY_S * 1000:g} ms (ss)."
    )
    with Scratch() as scratch, transfer.ends(scratch, "1gbit", "0us") as between:
        images = Images(scratch)
        zeros = images.get("zeroed", size_bytes)
        turns = {}
        for one in COMPRESSORS[:2]:
            file = packed(one, zeros)
            pipe = Pipe(f"zeros by {one.name}", "cat {image}", one.unpack)
            turns[f"{pipe.name}, {os.path.getsize(file)} bytes"] = functools.partial(
                buffered, scratch, between, zeros, pipe, file
            )
        noise = images.get("random", MIB)
        pipe = Pipe("random bytes", "cat {image}")
        turns[f"random bytes, {MIB} bytes"] = functools.partial(buffered, scratch, between, noise, pipe, noise.path)
        results = interleave("buffers", rounds, turns, ("sender", "seconds", "unsent", "unread"))
    return grid.figures(PART, "Why a sender waits", "1 Gbit/s", results, BUFFERED, note)


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures: the open question first."""
    size_bytes = SIZE_BYTES_QUICK if settings.quick else SIZE_BYTES
    print(f"{PART}: {iec(size_bytes)} by {', '.join(one.name for one in COMPRESSORS)}", flush=True)
    columns: list[Callable[[], list[Figure]]] = [functools.partial(measure_buffers, settings, size_bytes)]
    columns += [
        functools.partial(measure_sending, link, kind, settings, size_bytes)
        for link, kind in itertools.product(list(LINKS)[:1] if settings.quick else LINKS, KINDS)
    ]
    columns += [
        functools.partial(measure_compressing, disk, kind, settings, size_bytes)
        for disk, kind in itertools.product(disks.DISKS, KINDS[:2] if settings.quick else KINDS)
    ]
    return while_time_lasts(columns)
