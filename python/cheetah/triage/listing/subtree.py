"""The directories that listing tasks begin with, and leave over."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Start:
    """A directory to list, with all below it."""

    inode: int
    path: bytes
    """Ends with a slash, or is empty for the root."""
    above: tuple[int, ...]
    """Directories this one is in, without the root, itself included."""
    orphan: bool = False
    once: bool = False
    """Whether each directory below is to be listed where it is met first, and nowhere else."""

    def plain(self) -> list[object]:
        """As a task carries it."""
        plain = [self.inode, self.path.decode("utf-8", "surrogateescape"), list(self.above), self.orphan]
        return [*plain, True] if self.once else plain

    @classmethod
    def of(cls, plain: list[Any]) -> "Start":
        """Back from what a task carries."""
        inode, path, above, orphan, *once = plain
        return cls(inode, path.encode("utf-8", "surrogateescape"), tuple(above), orphan, bool(once))


@dataclasses.dataclass(frozen=True)
class Left:
    """A directory left to another task: it belongs before row `row`, within start number `within`."""

    within: int
    row: int
    start: Start
