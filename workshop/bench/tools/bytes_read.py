"""Counts the bytes of an image that tools read, each byte once."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

OPENED = re.compile(r'openat\([^,]*, "([^"]*)".* = (\d+)')
MOVED = re.compile(r"lseek\((\d+), .* = (\d+)")
READ = re.compile(r"read\((\d+), .* = (\d+)$")
READ_AT = re.compile(r"pread64\((\d+), .*, (\d+)\) = (\d+)$")


def strace(directory: str) -> list[str]:
    """Returns a command prefix for `bytes_read`: it writes one file per process into the directory, so that lines of
    different processes do not mix."""
    output = os.path.join(directory, "trace")
    return [
        "strace",
        "-ff",
        "-qq",
        "-s",
        "0",
        "-e",
        "trace=openat,lseek,read,pread64",
        "-e",
        "signal=none",
        "-o",
        output,
    ]


def ranges(trace: Iterable[str], path: str) -> Iterator[tuple[int, int]]:
    """Yields the ranges, from and to, that a single-threaded process read of the file `path`, from lines of
    `strace`."""
    positions: dict[str, int] = {}
    for line in trace:
        if found := OPENED.match(line):
            name, descriptor = found.groups()
            positions.pop(descriptor, None)
            if name == path:
                positions[descriptor] = 0
        elif (found := MOVED.match(line)) and found[1] in positions:
            positions[found[1]] = int(found[2])
        elif (found := READ_AT.match(line)) and found[1] in positions:
            yield int(found[2]), int(found[2]) + int(found[3])
        elif (found := READ.match(line)) and found[1] in positions:
            start = positions[found[1]]
            positions[found[1]] += int(found[2])
            yield start, positions[found[1]]


def counted_once(found: Iterable[tuple[int, int]]) -> int:
    """Returns the number of bytes in the union of the ranges."""
    total, reached = 0, 0
    for start, end in sorted(found):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def bytes_read(directory: str, path: str) -> int:
    """Returns the number of bytes of the file `path` read by all processes traced into the directory, each byte
    counted once."""
    found: list[tuple[int, int]] = []
    for name in os.listdir(directory):
        with open(os.path.join(directory, name), encoding="utf-8", errors="replace") as trace:
            found += ranges(trace, path)
    return counted_once(found)
