"""Previews: a few files and names read before the listing is complete, so that findings appear early. They are shown,
not stored; the result contains them in their turn."""

from collections.abc import Callable, Iterable, Iterator

from cheetah.triage.hub import plan
from cheetah.triage.hub.top_findings import TopFindings
from cheetah.triage.listing import mft_preview
from cheetah.triage.ranking import score
from cheetah.triage.task import Result, Task, Volume


class Previews:
    """Runs the preview tasks. `submit` schedules a task, with priority on request; `is_listed` returns whether any part of a
    volume's listing exists."""

    def __init__(self, latest: TopFindings, submit: Callable[[Task, bool], None], is_listed: Callable[[int], bool]):
        self._top_findings = latest
        self._submit = submit
        self._is_listed = is_listed
        self._file_tasks: set[str] = set()

    def name_tasks(self, volumes: Iterable[Volume]) -> Iterator[Task]:
        """Returns tasks that search names, for workers that are idle while others begin the listing."""
        for volume in volumes:
            if volume.fs == "ntfs" and not self._is_listed(volume.index):
                yield mft_preview.first_task(volume.index)

    def preview_files(self, result: Result) -> None:
        """Schedules reading a few of the files that a task has listed."""
        if result.rows is None or len(self._file_tasks) >= plan.PREVIEWS_MAX:
            return
        task = plan.preview(result.rows, score.rank)
        if task is not None:
            self._file_tasks.add(task.id)
            self._submit(task, True)

    def takes(self, task: Task, result: Result) -> bool:
        """Returns whether a task is a preview, and shows its findings if so."""
        if task.stage != "preview" and task.id not in self._file_tasks:
            return False
        self._top_findings.add_previews(result.findings)
        # Once the listing has names, previews of more are useless.
        if task.stage == "preview" and not self._is_listed(task.volume):
            for further in result.tasks:
                self._submit(further, False)
        return True
