"""The directories from which listing tasks start, and those they defer."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class SubtreeStart:
    """A directory to list with everything below it."""

    inode: int
    path: bytes
    """Ends with a slash, or is empty for the root."""
    above: tuple[int, ...]
    """The directories above it without the root, and itself."""
    orphan: bool = False
    once: bool = False
    """Whether each directory below is listed only where it is first met."""

    def plain(self) -> list[object]:
        """Returns the form that a task carries."""
        plain = [self.inode, self.path.decode("utf-8", "surrogateescape"), list(self.above), self.orphan]
        return [*plain, True] if self.once else plain

    @classmethod
    def of(cls, plain: list[Any]) -> "SubtreeStart":
        """Parses the form that a task carries."""
        inode, path, above, orphan, *once = plain
        return cls(inode, path.encode("utf-8", "surrogateescape"), tuple(above), orphan, bool(once))


@dataclasses.dataclass(frozen=True)
class Deferred:
    """A directory deferred to another task: it belongs before row `row`, within start number `within`."""

    within: int
    row: int
    start: SubtreeStart
