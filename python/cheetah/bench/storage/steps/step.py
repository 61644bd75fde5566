"""A step: one task of an examiner's tools on a target, measured as a whole."""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

FULL_BELOW_BYTES = 64 << 10


class NotReached(Exception):
    """The step's input is missing: a sentence. The run continues with the next step."""


class Skipped(Exception):
    """The image has nothing for this step, or the tool cannot do it here: a sentence."""


@dataclasses.dataclass(frozen=True)
class Workplace:
    """Where a step works."""

    directory: Path
    """A private directory in the target; a step writes only here."""
    source: Path
    """The original image: `copy` reads it, and other steps look up its file systems."""

    @property
    def image(self) -> Path:
        """The copy of the image that all steps after `copy` work on."""
        return self.directory / "image.raw"


@dataclasses.dataclass(frozen=True)
class Command:
    """A run of a program."""

    argv: tuple[str, ...]
    stdout: Path | None = None
    """A file in the target for its output; None returns it to the harness, which shows its end if the tool fails, and
    passes all of it to `Step.rate`."""
    good: frozenset[int] = frozenset({0})
    """Exit codes that mean success."""


def full(place: Workplace, tool: str) -> str:
    """Returns a complaint about a tool that does not report failed writes, if the target is full; otherwise ""."""
    space = os.statvfs(place.directory)
    # Others cannot use the blocks reserved for root.
    blocks = space.f_bfree if os.geteuid() == 0 else space.f_bavail
    if blocks * space.f_frsize >= FULL_BELOW_BYTES:
        return ""
    return f"the target is full, and {tool} does not report what it could not write"


class Step(Protocol):
    """One step. It has no state: one instance serves all targets and repetitions."""

    @property
    def key(self) -> str:
        """Its name in `--steps` and the results; `fio/read/64MiB/4KiB` for a cell of the matrix."""

    @property
    def title(self) -> str:
        """Its title in tables."""

    @property
    def tools(self) -> tuple[str, ...]:
        """The programs it needs; if one is missing the step is skipped. The first is the one measured."""

    @property
    def reads(self) -> bool:
        """Whether warm inputs make sense: not for a step that only writes, or bypasses the cache."""

    @property
    def after(self) -> tuple[str, ...]:
        """Keys of the steps that make its input."""

    def inputs(self, place: Workplace) -> Sequence[Path]:
        """Returns the files to be made cold or warm before it. Called after `commands`, which may make some of
        them."""

    def commands(self, place: Workplace) -> Sequence[Command]:
        """Returns the commands to run in sequence and measure together.

        It may prepare small things in the place, unmeasured, before caches are dropped. Raises NotReached or Skipped
        if the step cannot be done, OSError if the place cannot be written to.
        """

    def outputs(self, place: Workplace) -> Sequence[Path]:
        """Returns the files and directories it makes. They are removed before `commands` is called, and once nothing
        needs them."""

    def needs(self, place: Workplace) -> Sequence[Path]:
        """Returns the output of earlier steps that it needs, which is kept until it is done."""

    def rate(self, printed: str) -> float | None:
        """Returns bytes per second, if the tool's output reports them; otherwise None."""

    def busy(self, printed: str) -> tuple[float, float] | None:
        """Returns the seconds that the tool worked, without its start, and the processor time it used in them, if its
        output reports them; otherwise None."""

    def failure(self, place: Workplace, printed: str) -> str:
        """Returns why it failed in spite of a good exit code, or "". Called after it, with its output."""

    def least_read_bytes(self, place: Workplace) -> int:
        """Returns how much a complete run reads, for tools that do not report failed reads: a step that ended early
        would look fast. 0 for all others. Called after it."""

    def warnings(self, place: Workplace) -> Sequence[str]:
        """Returns warnings about its figures on this target."""


class Base:
    """The defaults of most steps, which read the copy of the image."""

    key = ""
    title = ""
    tools: tuple[str, ...] = ()
    reads = True
    after: tuple[str, ...] = ("copy",)

    def needs(self, place: Workplace) -> Sequence[Path]:
        """Returns the copy of the image."""
        return (place.image,)

    def inputs(self, place: Workplace) -> Sequence[Path]:
        """Returns its requirements."""
        return self.needs(place)

    def outputs(self, place: Workplace) -> Sequence[Path]:
        """Returns nothing."""
        return ()

    def rate(self, printed: str) -> float | None:
        """Returns None: the tool reports no rate."""
        return None

    def busy(self, printed: str) -> tuple[float, float] | None:
        """Returns None: the tool reports no times."""
        return None

    def failure(self, place: Workplace, printed: str) -> str:
        """Returns "": its exit code is reliable."""
        return ""

    def least_read_bytes(self, place: Workplace) -> int:
        """Returns 0: its exit code is reliable."""
        return 0

    def warnings(self, place: Workplace) -> Sequence[str]:
        """Returns nothing."""
        return ()

    def require(self, place: Workplace) -> None:
        """Raises NotReached if something it needs is missing."""
        for path in self.needs(place):
            if not path.exists():
                raise NotReached(f"there is no {path.name}, which a step before it makes: it failed or was left out")
