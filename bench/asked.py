"""What a tool reads of an image, each byte counted once however often it was read."""

from __future__ import annotations

import re
from collections.abc import Iterable

OPENED = re.compile(r'(\d+) +openat\([^,]*, "([^"]*)".* = (\d+)')
MOVED = re.compile(r"(\d+) +lseek\((\d+), .* = (\d+)")
READ = re.compile(r"(\d+) +read\((\d+), .* = (\d+)$")
READ_AT = re.compile(r"(\d+) +pread64\((\d+), .*, (\d+)\) = (\d+)$")

# How to have `strace` say it; the first argument that follows is the file for its output.
STRACE = ("strace", "-f", "-qq", "-s", "0", "-e", "trace=openat,lseek,read,pread64", "-e", "signal=none", "-o")


def ranges(trace: Iterable[str], path: str) -> list[tuple[int, int]]:
    """The ranges, from and to, that were read of the file `path`, from lines of `strace`. One thread a process."""
    positions: dict[tuple[str, str], int] = {}
    found = []
    for line in trace:
        if told := OPENED.match(line):
            process, name, descriptor = told.groups()
            positions.pop((process, descriptor), None)
            if name == path:
                positions[(process, descriptor)] = 0
        elif told := MOVED.match(line):
            process, descriptor, offset = told.groups()
            if (process, descriptor) in positions:
                positions[(process, descriptor)] = int(offset)
        elif told := READ_AT.match(line):
            process, descriptor, offset, length = told.groups()
            if (process, descriptor) in positions:
                found.append((int(offset), int(offset) + int(length)))
        elif told := READ.match(line):
            process, descriptor, length = told.groups()
            key = (process, descriptor)
            if key in positions:
                found.append((positions[key], positions[key] + int(length)))
                positions[key] += int(length)
    return found


def counted_once(found: Iterable[tuple[int, int]]) -> int:
    """The bytes that are in any of the ranges."""
    total, reached = 0, 0
    for start, end in sorted(found):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def bytes_asked(trace_path: str, path: str) -> int:
    """The bytes of the file `path` that were read, counted once, according to a trace."""
    with open(trace_path, encoding="utf-8", errors="replace") as trace:
        return counted_once(ranges(trace, path))
