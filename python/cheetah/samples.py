"""Samples of the content of a source, by which it is recognised: another disk may have its name and its size."""

import functools
import hashlib
from collections.abc import Callable, Sequence
from concurrent import futures

SAMPLES, SAMPLE_BYTES = 64, 4 << 10
"""The number and the size of the samples, from the first byte of a source to its last."""

Samples = Sequence[str | None]
"""Digests of places, in order; None where the source cannot be read."""


def take(size_bytes: int, pread: Callable[[int, int], bytes], at_once: int = 1) -> list[str | None]:
    """Returns samples of a source whose bytes are read by `pread` (offset, length), which raises OSError where they cannot be read;
    `at_once` is the number of reads under way."""
    last = max(0, size_bytes - SAMPLE_BYTES)
    places = [last * number // (SAMPLES - 1) for number in range(SAMPLES)]
    digest = functools.partial(_digest, pread, min(SAMPLE_BYTES, size_bytes))
    if at_once == 1:
        return [digest(place) for place in places]
    with futures.ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(digest, places))


def compared(one: Samples, other: Samples) -> int | None:
    """Returns the number of places at which two sources can be read and are equal; None if they differ at one."""
    pairs = [(first, second) for first, second in zip(one, other, strict=True) if None not in (first, second)]
    return len(pairs) if all(first == second for first, second in pairs) else None


def _digest(pread: Callable[[int, int], bytes], length: int, offset: int) -> str | None:
    try:
        return hashlib.sha256(pread(offset, length)).hexdigest()[:16]
    except OSError:
        return None
