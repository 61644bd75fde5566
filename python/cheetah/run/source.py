"""The source of a run, and samples of its content, by which a worker recognises it: another disk may have its name and its size."""

import dataclasses
import hashlib
from collections.abc import Callable, Sequence

SAMPLES, SAMPLE_BYTES = 64, 4 << 10
"""The number and the size of the samples, from the first byte of a source to its last."""


@dataclasses.dataclass(frozen=True)
class Source:
    """A source, as it is where the run is started."""

    name: str
    size_bytes: int
    samples: tuple[str | None, ...]
    """Digests of places; None where it cannot be read."""

    @classmethod
    def of(cls, name: str, size_bytes: int, pread: Callable[[int, int], bytes]) -> "Source":
        """Returns a source whose bytes are read by `pread` (offset, length), which raises OSError where they cannot be read."""
        last = max(0, size_bytes - SAMPLE_BYTES)
        places = [last * number // (SAMPLES - 1) for number in range(SAMPLES)]
        return cls(name, size_bytes, tuple(_digest(pread, place, min(SAMPLE_BYTES, size_bytes)) for place in places))


def is_same(one: Sequence[str | None], other: Sequence[str | None]) -> bool:
    """Returns whether samples may be those of one source. What one of them cannot read does not count; at least half of what either
    can read must be there to compare."""
    if len(one) != len(other):
        return False
    pairs = [(first, second) for first, second in zip(one, other, strict=True) if None not in (first, second)]
    readable = max(sum(sample is not None for sample in samples) for samples in (one, other))
    return bool(pairs) and 2 * len(pairs) >= readable and all(first == second for first, second in pairs)


def _digest(pread: Callable[[int, int], bytes], offset: int, length: int) -> str | None:
    try:
        return hashlib.sha256(pread(offset, length)).hexdigest()[:16]
    except OSError:
        return None
