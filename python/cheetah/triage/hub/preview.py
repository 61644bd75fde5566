"""What is seen before the listing is whole, so that somebody who watches sees something soon: a few files read early,
and names. All of it is told, and none is kept; the result has it in its turn."""

from collections.abc import Callable, Iterable, Iterator

from cheetah.triage.hub import plan
from cheetah.triage.hub.top_findings import Latest
from cheetah.triage.listing import mft_preview
from cheetah.triage.ranking import score
from cheetah.triage.task import Result, Task, Volume


class Early:
    """The tasks that are for that alone. `submit` has one done, first if it says so; `is_listed` says of a volume
    whether any part of its listing is there."""

    def __init__(self, latest: Latest, submit: Callable[[Task, bool], None], is_listed: Callable[[int], bool]):
        self._latest = latest
        self._submit = submit
        self._is_listed = is_listed
        self._peeks: set[str] = set()

    def glimpses(self, volumes: Iterable[Volume]) -> Iterator[Task]:
        """Looks at names, for workers that have nothing else to do while others begin with the listing."""
        for volume in volumes:
            if volume.fs == "ntfs" and not self._is_listed(volume.index):
                yield mft_preview.first_task(volume.index)

    def peek(self, result: Result) -> None:
        """Has a few files read of those that a task has listed."""
        if result.rows is None or len(self._peeks) >= plan.PEEKS_MAX:
            return
        task = plan.peek(result.rows, score.rank)
        if task is not None:
            self._peeks.add(task.id)
            self._submit(task, True)

    def takes(self, task: Task, result: Result) -> bool:
        """Whether a task is one of these. What it has seen is told then."""
        if task.stage != "glimpse" and task.id not in self._peeks:
            return False
        self._latest.see(result.findings)
        # More names are of no use once the listing has some.
        if task.stage == "glimpse" and not self._is_listed(task.volume):
            for further in result.tasks:
                self._submit(further, False)
        return True
