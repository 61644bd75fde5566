"""Reads damaged ranges: large pieces, and where one fails, smaller and smaller ones."""

import collections.abc
from typing import NamedTuple

PIECE_BYTES = 1 << 20
"""The largest piece."""
PARTS = 16
LEAST_BYTES = 4 << 10
"""A piece that fails is divided down to this size."""
FAILURES_MAX = 16
"""After this many failures of smallest pieces in a row, a piece that fails is given up if its end fails too: each
failure may have cost a time-out."""

Read = collections.abc.Callable[[int, int], bytes | None]


class ReadPiece(NamedTuple):
    """The outcome of a piece. `content` is None if it could not be read; `given_up` says that not all of it was
    tried."""

    offset: int
    length: int
    content: bytes | None
    given_up: bool = False


def of(read: Read, start: int, end: int) -> collections.abc.Iterator[ReadPiece]:
    """Yields pieces from `start` to `end`, ascending and without gaps. `read` returns all the bytes asked for, or
    None."""
    failures = 0

    def parts(offset: int, length: int, unit: int) -> collections.abc.Iterator[ReadPiece]:
        nonlocal failures
        content = read(offset, length)
        if content is not None:
            failures = 0
            yield ReadPiece(offset, length, content)
        elif length <= LEAST_BYTES:
            failures += 1
            yield ReadPiece(offset, length, None)
        elif failures >= FAILURES_MAX and read(offset + length - LEAST_BYTES, LEAST_BYTES) is None:
            yield ReadPiece(offset, length, None, given_up=True)
        else:
            unit = max(LEAST_BYTES, unit // PARTS)
            for place in range(offset, offset + length, unit):
                yield from parts(place, min(unit, offset + length - place), unit)

    for offset in range(start, end, PIECE_BYTES):
        yield from parts(offset, min(PIECE_BYTES, end - offset), PIECE_BYTES)
