"""A listing by the triage in this process, and by `fls`."""

import random
import subprocess
from collections.abc import Callable
from pathlib import Path

from conftest import PATIENCE_S, program

from cheetah.triage.filesystem import volumes
from cheetah.triage.hub.journal import Journal
from cheetah.triage.listing import assemble, walk
from cheetah.triage.reading.worker import Worker
from cheetah.triage.settings import Settings
from cheetah.triage.tables.store import Parts
from cheetah.triage.task import Problem, Task
from cheetah.triage.workers.perform import perform

NO_TIME = b"|3373865674"
"""What The Sleuth Kit up to 4.11 makes of a Windows time that is not set (0, the year 1601): -11644473600 s, cut to
32 bits. Later versions, as the one in pytsk3, say 0, "none". In all else the listings are the same, byte for byte."""


def by_fls(image: Path, start_sector: int | None = None) -> list[bytes]:
    """The lines of `fls -r -m /`."""
    offset = [] if start_sector is None else ["-o", str(start_sector)]
    argv = [program("fls"), "-r", "-m", "/", *offset, str(image)]
    done = subprocess.run(argv, capture_output=True, timeout=PATIENCE_S, check=False)
    return done.stdout.replace(NO_TIME, b"|0").splitlines()


class Listed:
    """The listing of a source by triage: lines, problems, tasks."""

    def __init__(self, source: str | Path, folder: Path, order: Callable[[list[Task]], Task] | None = None):
        self._worker = Worker(str(source), Settings(str(source), str(folder)))
        parts = Parts(folder / "parts")
        journal = Journal(folder / "journal.jsonl", parts)
        first = perform(volumes.task(), self._worker)
        self.volumes = self._worker.volumes = first.volumes
        self.problems: list[Problem] = list(first.problems)
        tasks = [walk.first_task(one.index, one.root_inode) for one in self.volumes if one.fs]
        left, done = list(tasks), {}
        while left:
            task = order(left) if order else left[0]
            left.remove(task)
            result = perform(task, self._worker)
            done[task.id] = journal.add(task, result)
            self.problems += result.problems
            left += result.tasks
        self.tasks = len(done)
        listing = assemble.Listing(parts, done, tasks)
        assert listing.is_whole()
        self.tables = list(listing.tables())
        self.lines = [line for table in self.tables for line in table.column("line").to_pylist()]
        self._worker.close()


def at_random(seed: int) -> Callable[[list[Task]], Task]:
    """Tasks in no order, as many workers do them."""
    return random.Random(seed).choice
