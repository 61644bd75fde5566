"""Where is measured: a place made ready for one run, and taken down after it."""

import dataclasses
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from cheetah.bench.failure import BenchError


@dataclasses.dataclass(frozen=True)
class Ready:
    """A target that can be worked in."""

    directory: Path
    """Ours alone, empty, in the target; nothing is written outside of it."""
    device: str | None
    """ "major:minor" of the device whose counters tell; None where the kernel has none."""
    pages_of: tuple[Path, ...] = ()
    """Further files whose pages are caches of this target: a drive's mounted file, a loop device's file."""
    always_cached: bool = False
    """Whether its files are in memory and nowhere else, as on tmpfs: no cache of it can be cold."""
    about: dict[str, str] = dataclasses.field(default_factory=dict)
    """Layout, unit, nodes, file system, mount options, read-ahead, free bytes: for the report."""


class Target(Protocol):
    """A candidate."""

    @property
    def name(self) -> str:
        """As tables say it."""

    def enter(self, need_bytes: int) -> AbstractContextManager[Ready]:
        """Makes it ready for so many bytes, and takes it down at the end of the `with`.

        BenchError where it cannot be: one sentence, which is told of each of its steps.
        """


class Missing(BenchError):
    """A program that is needed to make a target is not installed: its steps are skipped, which is no failure."""
