"""Notices that the source is gone. A source with a large unreadable part is not."""

from cheetah.triage.hub.opened import Workers
from cheetah.triage.reading.shared_source import SharedSource
from cheetah.triage.task import CompletedTask, Result, Task

FRUITLESS_MAX = 4
"""After this many consecutive tasks per worker without a result, the source is probed."""


class Stopped(Exception):
    """Continuing makes no sense: one sentence."""


class SourceWatch:
    """Watches the results of tasks, and probes the source when they bring nothing."""

    def __init__(self, shared: SharedSource, workers: Workers):
        self._shared = shared
        self._workers = workers
        self._fruitless = 0
        self._doubtful = False
        """Whether something could not be read in this stage."""
        self._last_problem = "a task was given up"

    def begin(self) -> None:
        """Begins a stage."""
        self._doubtful = False

    def note(self, task: Task, result: Result, done: CompletedTask) -> None:
        """Notes the result of a task. Raises Stopped if the source is gone."""
        brought = done.row_count if task.stage == "listing" else result.bytes_read
        fruitless = result.gone or result.failed or (done.unreadable and not brought)
        self._fruitless = self._fruitless + 1 if fruitless else 0
        self._doubtful |= fruitless or done.unreadable
        if result.problems:
            self._last_problem = result.problems[-1].sentence
        if result.gone or self._fruitless > FRUITLESS_MAX * self._workers.workers:
            self._must_answer()

    def end(self) -> None:
        """Ends a stage: no task may be left only because nothing could be read. Raises Stopped if the source is gone."""
        if self._doubtful:
            self._must_answer()

    def _must_answer(self) -> None:
        self._fruitless = 0
        if not self._shared.answers():
            raise Stopped(f"the source no longer answers; the last problem: {self._last_problem}")
