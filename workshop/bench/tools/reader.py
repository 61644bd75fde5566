#!/usr/bin/env python3
"""Reads a file in a pattern, one record at a time as most tools do, and prints bytes and seconds.

`reader.py FILE SIZE RECORD PATTERN SECONDS_MAX [ADVICE]` prints {"bytes": …, "seconds": …}. The harness runs it as a
separate process, so that a read that hangs can be ended. All patterns but `strided` cover the first SIZE bytes once.
ADVICE is none, random (the kernel does not read ahead) or direct (past the page cache).
"""

import json
import mmap
import os
import random
import sys
import time
from collections.abc import Iterator
from typing import Any

STRIDE_BYTES = 200 << 10
# Where the following passes of `strided` start, so that no record is read twice.
STRIDE_SHIFT_BYTES = 48 << 10
STRIDE_PASSES = 4
# As in iozone.
STRIDE_RECORDS = 17
STREAMS = 8


def forward(size: int, record: int) -> Any:
    """Returns offsets from start to end."""
    return range(0, size, record)


def backward(size: int, record: int) -> Any:
    """Returns offsets from the last record to the first."""
    return range((size - 1) // record * record, -1, -record)


def strided(size: int, record: int) -> Iterator[Any]:
    """Yields one record every 200 KiB, or every 17th of larger records, over the whole file, in four passes with
    different starts."""
    stride, shift = max(STRIDE_BYTES, STRIDE_RECORDS * record), max(STRIDE_SHIFT_BYTES, 4 * record)
    for number in range(STRIDE_PASSES):
        yield from range(number * shift, size - record + 1, stride)


def interleaved(size: int, record: int) -> Iterator[Any]:
    """Yields eight sequential streams through an eighth each, alternating record by record."""
    share = size // STREAMS // record * record
    for at in range(0, share, record):
        for stream in range(STREAMS):
            yield stream * share + at


def random_order(size: int, record: int) -> list[int]:
    """Returns the offsets of all records in an order that looks random and is the same at every call."""
    offsets = list(range(0, size, record))
    random.Random(1).shuffle(offsets)
    return offsets


PATTERNS = {
    "forward": forward,
    "backward": backward,
    "strided": strided,
    "interleaved": interleaved,
    "random": random_order,
}


def read(path: str, offsets: Any, record: int, seconds_max: float, advice: str = "none") -> Any:
    """Reads a record at each offset until all are read or the time is up; returns bytes and seconds."""
    # Direct reads need aligned memory.
    buffer = [mmap.mmap(-1, record)]
    total = 0
    descriptor = os.open(path, os.O_RDONLY | (os.O_DIRECT if advice == "direct" else 0))
    if advice == "random":
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    try:
        start = time.perf_counter()
        deadline = start + seconds_max
        for count, offset in enumerate(offsets):
            got = os.preadv(descriptor, buffer, offset)
            if got <= 0:
                raise OSError(f"{path}: nothing at {offset}")
            total += got
            if count % 256 == 0 and time.perf_counter() > deadline:
                break
        return total, time.perf_counter() - start
    finally:
        os.close(descriptor)


def main() -> None:
    """Entry point."""
    path, size, record, pattern, seconds_max = sys.argv[1:6]
    offsets = PATTERNS[pattern](int(size), int(record))
    total, seconds = read(path, offsets, int(record), float(seconds_max), *sys.argv[6:])
    print(json.dumps({"bytes": total, "seconds": seconds}))


if __name__ == "__main__":
    main()
