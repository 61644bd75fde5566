"""A step: one piece of work that an examiner's tools do on a target, measured as a whole."""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

FULL_BELOW_BYTES = 64 << 10


class NotReached(Exception):
    """What the step works on is not there; a sentence. The run goes on with the next step."""


class Skipped(Exception):
    """There is nothing to do for it in this image, or the tool cannot do it here; a sentence."""


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a step works."""

    directory: Path
    """Ours alone, in the target; all that a step writes goes in here."""
    source: Path
    """The image, elsewhere: it is read by `copy` alone, and looked at for what is in it."""

    @property
    def image(self) -> Path:
        """The copy of the image that all steps after `copy` work on."""
        return self.directory / "image.raw"


@dataclasses.dataclass(frozen=True)
class Command:
    """A program's run."""

    argv: tuple[str, ...]
    stdout: Path | None = None
    """A file in the target that gets what it prints; None: it is read by the harness, which tells the end of it where
    the tool fails, and `Step.rate` all of it."""
    good: frozenset[int] = frozenset({0})
    """Exit codes that mean that it did its work."""


def full(place: Place, tool: str) -> str:
    """The complaint about a tool that keeps to itself what it could not write, if the target is full; else ""."""
    space = os.statvfs(place.directory)
    # The blocks that only root may have are not there for others.
    blocks = space.f_bfree if os.geteuid() == 0 else space.f_bavail
    if blocks * space.f_frsize >= FULL_BELOW_BYTES:
        return ""
    return f"the target is full, and {tool} does not say what it could not write"


class Step(Protocol):
    """One step. It has no state: the same one is used on every target, as often as there are repetitions."""

    @property
    def key(self) -> str:
        """As `--steps` and the results have it; `fio/read/64MiB/4KiB` for a cell of the matrix."""

    @property
    def title(self) -> str:
        """As tables have it."""

    @property
    def tools(self) -> tuple[str, ...]:
        """The programs it needs; where one is missing the step is skipped. The first is the one that is measured."""

    @property
    def reads(self) -> bool:
        """Whether it makes sense to have its inputs in memory: no for what only writes, and for what goes past it."""

    @property
    def after(self) -> tuple[str, ...]:
        """Keys of the steps that make what it works on."""

    def inputs(self, place: Place) -> Sequence[Path]:
        """Files that are to be cold or warm before it. Asked after `commands`, which may make some of them."""

    def commands(self, place: Place) -> Sequence[Command]:
        """What is run, one after the other, and measured together.

        It may make small things ready in the place; that is not measured, and done before caches are dropped.
        NotReached or Skipped where it cannot be done, OSError where the place cannot be written to.
        """

    def outputs(self, place: Place) -> Sequence[Path]:
        """Files and directories it makes. They are removed before `commands` is asked, and once nothing needs them."""

    def needs(self, place: Place) -> Sequence[Path]:
        """What a step before it has left for it: files or directories, which are kept until it is done."""

    def rate(self, printed: str) -> float | None:
        """Bytes a second, where the tool itself tells them in what it printed; None for all others."""

    def busy(self, printed: str) -> tuple[float, float] | None:
        """Seconds that the tool worked for, without its start, and the processor time it used in them, where the tool
        tells in what it printed; None for all others."""

    def failure(self, place: Place, printed: str) -> str:
        """Why it has failed although its exit code was good, a sentence; "" where it has not. Asked after it, with what
        it printed: some tools do not tell otherwise."""

    def least_read_bytes(self, place: Place) -> int:
        """What its tools have read when they are done with all of it, of tools that do not tell when a read fails; a
        step that ended early would look like a fast one. 0 for all others. Asked after it."""

    def warnings(self, place: Place) -> Sequence[str]:
        """What whoever reads its figures has to know of them, here: a sentence each."""


class Base:
    """What most steps have in common: they read the copy of the image."""

    key = ""
    title = ""
    tools: tuple[str, ...] = ()
    reads = True
    after: tuple[str, ...] = ("copy",)

    def needs(self, place: Place) -> Sequence[Path]:
        """The copy of the image."""
        return (place.image,)

    def inputs(self, place: Place) -> Sequence[Path]:
        """What it needs."""
        return self.needs(place)

    def outputs(self, place: Place) -> Sequence[Path]:
        """Nothing."""
        return ()

    def rate(self, printed: str) -> float | None:
        """The tool tells none."""
        return None

    def busy(self, printed: str) -> tuple[float, float] | None:
        """The tool tells nothing."""
        return None

    def failure(self, place: Place, printed: str) -> str:
        """Its exit code is to be believed."""
        return ""

    def least_read_bytes(self, place: Place) -> int:
        """Its exit code is to be believed."""
        return 0

    def warnings(self, place: Place) -> Sequence[str]:
        """Nothing to be said."""
        return ()

    def require(self, place: Place) -> None:
        """NotReached where something it needs is not there."""
        for path in self.needs(place):
            if not path.exists():
                raise NotReached(f"there is no {path.name}, which a step before it makes: it failed or was left out")
