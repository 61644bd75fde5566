"""A worker in this process instead of a run's own, so that its reads can be made to fail."""

import collections
from collections.abc import Callable, Iterable, Iterator

from cheetah.placing import Placement
from cheetah.triage.reading.worker import Worker
from cheetah.triage.settings import Settings
from cheetah.triage.task import Result, Task, Volume
from cheetah.triage.workers.pool import attempt, lost


class Alone:
    """Does tasks one after the other. A task for which `ends_workers` holds is given up, as a pool does."""

    workers = 1
    lost = 0
    placement: Placement | None = None

    def __init__(self, uri: str, settings: Settings, ends_workers: Callable[[Task], bool] = lambda task: False):
        self.volumes: tuple[Volume, ...] = ()
        self._worker = Worker(uri, settings)
        self._ends_workers = ends_workers
        self._queue: collections.deque[Task] = collections.deque()

    def submit(self, task: Task, first: bool = False) -> None:
        (self._queue.appendleft if first else self._queue.append)(task)

    def results(self, more: Iterable[Task] = ()) -> Iterator[tuple[Task, Result] | None]:
        tasks = iter(more)
        while True:
            task = self._queue.popleft() if self._queue else next(tasks, None)
            if task is None:
                if not self._queue:
                    return
                continue
            self._worker.volumes = self.volumes
            yield task, lost(task, "its worker died") if self._ends_workers(task) else attempt(task, self._worker)

    def close(self) -> None:
        self._worker.close()
