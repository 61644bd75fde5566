"""What a run works with, once its source, its folder and its records are open."""

import dataclasses
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent import futures
from typing import Any, Protocol

from cheetah.placing import Placement
from cheetah.triage.filesystem import volumes
from cheetah.triage.hub.custody import Custody
from cheetah.triage.hub.journal import Journal
from cheetah.triage.hub.ledger import Ledger
from cheetah.triage.hub.preview import Previews
from cheetah.triage.hub.stage_progress import StageProgress
from cheetah.triage.hub.top_findings import TopFindings
from cheetah.triage.reading.shared_source import SharedSource
from cheetah.triage.settings import Settings
from cheetah.triage.tables.store import Parts
from cheetah.triage.task import Result, Task, Volume


class Workers(Protocol):
    """A performer of tasks: `pool.Pool` or `cluster.Cluster`."""

    volumes: tuple[Volume, ...]
    lost: int

    @property
    def workers(self) -> int:
        """The number of tasks performed at once."""

    @property
    def placement(self) -> Placement | None:
        """How many tasks were placed near their bytes; None if all workers are on this machine."""

    def submit(self, task: Task, first: bool = False) -> None:
        """Schedules a task."""

    def results(self, more: Iterable[Task] = ()) -> Iterator[tuple[Task, Result] | None]:
        """Yields results as they arrive."""

    def close(self) -> None:
        """Ends the workers."""


@dataclasses.dataclass(frozen=True)
class Opened:
    """A run that is ready to examine its source."""

    settings: Settings
    command: tuple[str, ...]
    """The command line, for the report."""
    started: str
    """When the run started: UTC, RFC 3339."""
    out: pathlib.Path
    shared: SharedSource
    identity: dict[str, Any]
    """The name, the size and samples of the source."""
    workers: Workers
    log: Custody
    parts: Parts
    journal: Journal
    ledger: Ledger
    top_findings: TopFindings
    progress: StageProgress
    previews: Previews
    looking: "futures.Future[Sequence[str]]"
    """A look for what is in doubt about the source."""

    def doubts(self) -> tuple[str, ...]:
        """Waits for what is in doubt about the source, and says and records it once."""
        doubts = tuple(self.looking.result())
        if doubts and not self.progress.doubts:
            self.progress.doubts = doubts
            self.log.doubts(doubts)
        return doubts

    def volumes_task(self) -> Task:
        """Returns the first task of all."""
        sector_size = self.settings.sector_size or self.shared.sector_size
        shared = self.shared
        return volumes.task(sector_size, shared.opened_volumes(), shared.locked, shared.logical, self.identity["size"])

    @property
    def searches_unallocated(self) -> bool:
        """Whether there are keywords or rules to look for in unallocated space."""
        settings = self.settings
        return settings.unallocated and not settings.quick and bool(settings.keywords or settings.yara)
