"""What `cheetah bench storage` was asked for."""

import dataclasses
from enum import StrEnum
from pathlib import Path
from typing import Any

from cheetah.bench.storage.measurement.sample import COLD, WARM

STATES = (COLD, WARM)
REPETITIONS = 3
STEP_LIMIT_S = 3600.0


class Extent(StrEnum):
    """How much is measured."""

    QUICK = "quick"
    """Small and short: shows that it works, not how fast."""
    NORMAL = "normal"
    FULL = "full"
    """Every cell of the matrix: hours."""


@dataclasses.dataclass(frozen=True)
class DrivePlan:
    """A drive that is made for the run and destroyed after it."""

    layout: str
    """ "linear" or "stripe"."""
    unit_bytes: int
    """Of one node before the next one's turn; says nothing where the layout is linear."""
    nodes: tuple[str, ...] = ()
    """HOST:PORT of nodes that run already; empty where they are started for the run."""
    local: int = 0
    """How many nodes are started on this machine for the run."""

    @property
    def width(self) -> int:
        """How many nodes it is on."""
        return self.local or len(self.nodes)


@dataclasses.dataclass(frozen=True)
class TargetSpec:
    """One candidate: a directory, or a drive to be made."""

    name: str
    """As tables say it; no two targets of a run have the same."""
    directory: Path | None = None
    """Absolute; None for a drive."""
    drive: DrivePlan | None = None
    fs: str | None = None
    """The file system made for the run: always one on a drive; in a directory none, or one in a file there."""
    readahead_bytes: int | None = None
    """What the kernel reads ahead of the loop device; None: as it comes."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """All of a run's options. Paths are absolute."""

    targets: tuple[TargetSpec, ...]
    baseline: str
    """The name of a target."""
    out: Path
    image: Path | None = None
    """What is worked on; None: one is made in `out`."""
    steps: tuple[str, ...] = ()
    """Keys of the steps; empty: all."""
    repetitions: int = REPETITIONS
    states: tuple[str, ...] = (COLD,)
    extent: Extent = Extent.NORMAL
    step_limit_s: float = STEP_LIMIT_S
    """A step that takes longer counts as hung."""
    resume: bool = False
    beside_evidence: bool = False
    json: bool = False

    @property
    def quick(self) -> bool:
        """Whether little is enough."""
        return self.extent is Extent.QUICK

    @property
    def full(self) -> bool:
        """Whether everything is wanted."""
        return self.extent is Extent.FULL

    def binding(self) -> dict[str, Any]:
        """What the samples depend on: a run is resumed only with the same. The image's content is the reader's."""
        return {
            "targets": [_plain(dataclasses.asdict(target)) for target in self.targets],
            "image": str(self.image) if self.image else None,
            "steps": list(self.steps),
            "states": list(self.states),
            "extent": str(self.extent),
        }


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {key: str(value) if isinstance(value, Path) else value for key, value in values.items()}
