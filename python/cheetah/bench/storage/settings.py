"""The settings of `cheetah bench storage`."""

import dataclasses
from enum import StrEnum
from pathlib import Path
from typing import Any

from cheetah.bench.storage.sample import COLD, WARM

STATES = (COLD, WARM)
DISK_MODELS = ("ide", "desktop", "velociraptor", "zero")
"""The models of disks that the lab's program serves."""
LINEAR = "linear"
NODES_MIN = {LINEAR: 1, "stripe": 1, "mirror": 2, "parity": 3}
"""By layout: the least number of nodes. All but a linear drive have a stripe unit."""
REPETITIONS = 3
STEP_LIMIT_S = 3600.0


class Scope(StrEnum):
    """How much is measured."""

    QUICK = "quick"
    """Small and short: shows that it works, not how fast."""
    NORMAL = "normal"
    FULL = "full"
    """Every cell of the matrix; takes hours."""


@dataclasses.dataclass(frozen=True)
class DrivePlan:
    """A drive created for the run and destroyed after it."""

    layout: str
    """A key of `NODES_MIN`."""
    unit_bytes: int
    """The stripe unit; unused if the layout is linear."""
    nodes: tuple[str, ...] = ()
    """HOST:PORT of running nodes, or NBD URIs of given servers; empty if nodes are started for the run."""
    local: int = 0
    """The number of nodes to start on this machine."""
    disk_model: str = ""
    """What is started in place of nodes: models of this disk, each behind an NBD server."""

    @property
    def width(self) -> int:
        """The number of its nodes."""
        return self.local or len(self.nodes)

    @property
    def has_unit(self) -> bool:
        """Whether it has a stripe unit."""
        return self.layout != LINEAR

    @property
    def data_width(self) -> int:
        """The number of nodes that together hold the content once."""
        return {"mirror": self.width // 2, "parity": self.width - 1}.get(self.layout, self.width)


@dataclasses.dataclass(frozen=True)
class TargetSpec:
    """A candidate: a directory, a drive to create, or the model of a disk."""

    name: str
    """The name in tables, unique in a run."""
    directory: Path | None = None
    """Absolute; None for others."""
    drive: DrivePlan | None = None
    fs: str | None = None
    """The file system made for the run: always one on a drive and a model; in a directory none, or one in a file
    there."""
    readahead_bytes: int | None = None
    """The kernel's read-ahead for the loop device; None for the default."""
    disk_model: str = ""
    """The model of a disk, if it is one."""

    @property
    def is_model(self) -> bool:
        """Whether a model of a disk takes part, which each of its rows must say."""
        return bool(self.disk_model or (self.drive and self.drive.disk_model))


@dataclasses.dataclass(frozen=True)
class Settings:
    """All of a run's options. Paths are absolute."""

    targets: tuple[TargetSpec, ...]
    baseline: str
    """The name of a target."""
    out: Path
    image: Path | None = None
    """The image to work on; None to make one in `out`."""
    steps: tuple[str, ...] = ()
    """Keys of the steps; empty: all."""
    repetitions: int = REPETITIONS
    states: tuple[str, ...] = (COLD,)
    extent: Scope = Scope.NORMAL
    step_limit_s: float = STEP_LIMIT_S
    """A step that takes longer counts as hung."""
    resume: bool = False
    beside_evidence: bool = False
    json: bool = False

    @property
    def quick(self) -> bool:
        """Whether a short run suffices."""
        return self.extent is Scope.QUICK

    @property
    def full(self) -> bool:
        """Whether the full matrix is wanted."""
        return self.extent is Scope.FULL

    def binding(self) -> dict[str, Any]:
        """Returns the settings that the samples depend on: a run resumes only with the same. The user vouches for the
        image's content."""
        return {
            "targets": [_plain(dataclasses.asdict(target)) for target in self.targets],
            "image": str(self.image) if self.image else None,
            "steps": list(self.steps),
            "states": list(self.states),
            "extent": str(self.extent),
        }


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {key: str(value) if isinstance(value, Path) else value for key, value in values.items()}
