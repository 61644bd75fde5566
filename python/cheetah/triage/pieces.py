"""Reading what may be damaged: large pieces, and where one cannot be read, smaller and smaller ones."""

import collections.abc

PIECE_BYTES = 1 << 20
"""What is read at once."""
PARTS = 16
LEAST_BYTES = 4 << 10
"""A piece that cannot be read is tried in parts, and those in parts, down to this."""
FAILURES_MAX = 16
"""So many of the smallest may fail before the rest is given up: each may have cost the source's patience."""

Read = collections.abc.Callable[[int, int], bytes | None]
Piece = tuple[int, int, bytes | None]


def of(read: Read, start: int, end: int) -> collections.abc.Iterator[Piece]:
    """Offset, length and bytes from `start` to `end`, ascending and without gaps; None for bytes that cannot be read.
    `read` gives all the bytes it is asked for, or None."""
    failures = 0

    def parts(offset: int, length: int, unit: int) -> collections.abc.Iterator[Piece]:
        nonlocal failures
        given_up = failures >= FAILURES_MAX
        content = None if given_up else read(offset, length)
        if content is not None or given_up or unit <= LEAST_BYTES:
            failures += content is None
            yield offset, length, content
            return
        unit = max(LEAST_BYTES, unit // PARTS)
        for place in range(offset, offset + length, unit):
            yield from parts(place, min(unit, offset + length - place), unit)

    for offset in range(start, end, PIECE_BYTES):
        yield from parts(offset, min(PIECE_BYTES, end - offset), PIECE_BYTES)
