"""What tools read of an image, each byte counted once however often it was read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

OPENED = re.compile(r'openat\([^,]*, "([^"]*)".* = (\d+)')
MOVED = re.compile(r"lseek\((\d+), .* = (\d+)")
READ = re.compile(r"read\((\d+), .* = (\d+)$")
READ_AT = re.compile(r"pread64\((\d+), .*, (\d+)\) = (\d+)$")


def strace(directory: str) -> list[str]:
    """What to put before a command so that `bytes_asked` can tell: a file in the directory for each process, in which
    no line is broken by another process's."""
    output = os.path.join(directory, "trace")
    return ["strace", "-ff", "-qq", "-s", "0", "-e", "trace=openat,lseek,read,pread64", "-e", "signal=none", "-o", output]


def ranges(trace: Iterable[str], path: str) -> Iterator[tuple[int, int]]:
    """The ranges, from and to, that one process with one thread read of the file `path`, from lines of `strace`."""
    positions: dict[str, int] = {}
    for line in trace:
        if told := OPENED.match(line):
            name, descriptor = told.groups()
            positions.pop(descriptor, None)
            if name == path:
                positions[descriptor] = 0
        elif (told := MOVED.match(line)) and told[1] in positions:
            positions[told[1]] = int(told[2])
        elif (told := READ_AT.match(line)) and told[1] in positions:
            yield int(told[2]), int(told[2]) + int(told[3])
        elif (told := READ.match(line)) and told[1] in positions:
            start = positions[told[1]]
            positions[told[1]] += int(told[2])
            yield start, positions[told[1]]


def counted_once(found: Iterable[tuple[int, int]]) -> int:
    """The bytes that are in any of the ranges."""
    total, reached = 0, 0
    for start, end in sorted(found):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def bytes_asked(directory: str, path: str) -> int:
    """The bytes of the file `path` that were read, each counted once, by all processes traced into the directory."""
    found: list[tuple[int, int]] = []
    for name in os.listdir(directory):
        with open(os.path.join(directory, name), encoding="utf-8", errors="replace") as trace:
            found += ranges(trace, path)
    return counted_once(found)
