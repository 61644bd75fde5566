"""Targets: places prepared for one run, and taken down after it."""

import dataclasses
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from cheetah.bench.failure import BenchError


@dataclasses.dataclass(frozen=True)
class ReadyTarget:
    """A usable target."""

    directory: Path
    """A private, empty directory in the target; nothing is written outside it."""
    device: str | None
    """"major:minor" of the device whose counters are read; None if the kernel has none."""
    pages_of: tuple[Path, ...] = ()
    """Further files whose pages are caches of this target: a drive's mounted file, a loop device's file."""
    always_cached: bool = False
    """Whether its files are in memory and nowhere else, as on tmpfs: no cache of it can be cold."""
    about: dict[str, str] = dataclasses.field(default_factory=dict)
    """Layout, unit, nodes, file system, mount options, read-ahead, free space: for the report."""


class Target(Protocol):
    """A candidate."""

    @property
    def name(self) -> str:
        """The name in tables."""

    def enter(self, need_bytes: int) -> AbstractContextManager[ReadyTarget]:
        """Makes it ready for that many bytes, and takes it down at the end of the `with`.

        Raises BenchError if it cannot be used, with a sentence that is recorded for each of its steps.
        """


class Missing(BenchError):
    """A program needed to make a target is not installed: its steps are skipped, which is not a failure."""
