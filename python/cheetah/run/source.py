"""The source of a run, and samples of its content, by which a worker recognises it: another disk may have its name and its size."""

import dataclasses
from collections.abc import Callable

from cheetah import samples
from cheetah.samples import Samples


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
        return cls(name, size_bytes, tuple(samples.take(size_bytes, pread)))


def is_same(one: Samples, other: Samples) -> bool:
    """Returns whether samples may be those of one source. What one of them cannot read does not count; at least half of what either
    can read must be there to compare."""
    if len(one) != len(other):
        return False
    readable = max(sum(sample is not None for sample in of_one) for of_one in (one, other))
    # Of sources that differ, nothing is the same.
    equal = samples.compared(one, other) or 0
    return equal > 0 and 2 * equal >= readable
