"""The completed tasks of a run, stage by stage, those of earlier runs included."""

import collections
from collections.abc import Callable, Iterable, Iterator

from cheetah.triage.hub.journal import Journal
from cheetah.triage.listing import walk
from cheetah.triage.task import CompletedTask, Result, Task, Volume

STAGES = ("volumes", "listing", "content", "unallocated")


class Ledger:
    """The tasks that make up the result. `submit` schedules a task, with priority on request; `forget` is called with a volume
    whose listing starts over."""

    def __init__(self, journal: Journal, submit: Callable[[Task, bool], None], forget: Callable[[int], None]):
        self.done: dict[str, dict[str, CompletedTask]] = {stage: {} for stage in STAGES}
        self.first_tasks: list[Task] = []
        """The tasks that the listing starts from."""
        self.bytes_read = 0
        self.searched_bytes = 0
        """Bytes of unallocated space."""
        self._journal = journal
        self._submit = submit
        self._forget = forget
        self._volumes: tuple[Volume, ...] = ()
        self._listed: collections.defaultdict[int, dict[str, int]] = collections.defaultdict(dict)

    def begin_listing(self, volumes: tuple[Volume, ...]) -> list[Task]:
        """Returns the first listing tasks of these volumes."""
        self._volumes = volumes
        self.first_tasks = [walk.first_task(volume.index, volume.root_inode) for volume in volumes if volume.fs]
        return self.first_tasks

    def to_do(self, tasks: Iterable[Task]) -> Iterator[Task]:
        """Returns the tasks not yet done. Those that an earlier run could not read come last, so that each run makes
        progress."""
        again: list[Task] = []
        for task in tasks:
            if self._is_known(task):
                continue
            if task.id in self._journal.known:
                again.append(task)
            else:
                yield task
        yield from again

    def add(self, task: Task, result: Result) -> tuple[CompletedTask, bool]:
        """Stores the result of a task; also returns whether it is part of the result."""
        done = self._journal.add(task, result)
        return done, self._take(task, done)

    def is_listed(self, volume: int) -> bool:
        """Returns whether any part of a volume's listing exists."""
        return bool(self._listed.get(volume))

    def rows(self, stage: str) -> int:
        """Returns the number of rows from the tasks of a stage."""
        return sum(one.row_count for one in self.done.get(stage, {}).values())

    def all(self) -> list[CompletedTask]:
        """Returns the completed tasks of all stages."""
        return [one for stage in self.done.values() for one in stage.values()]

    def _is_known(self, task: Task) -> bool:
        """Adopts the result of a task from an earlier run, if there is one."""
        done = self._journal.find(task)
        if done is not None:
            self._take(task, done)
        return done is not None

    def _take(self, task: Task, done: CompletedTask) -> bool:
        """Counts a task as done and schedules the tasks it returned. Returns whether it is part of the result."""
        if task.stage == "listing" and self._is_tangled(task, done):
            return False
        self.done[task.stage][task.id] = done
        self.bytes_read += done.bytes_read
        self.searched_bytes += task.what[1] if task.stage == "unallocated" else 0
        for further in done.tasks:
            if not self._is_known(further):
                self._submit(further, further.stage == "listing" and walk.is_of_orphans(further))
        return True

    def _is_tangled(self, task: Task, done: CompletedTask) -> bool:
        """Returns whether a task's listing is useless because directories of its volume have several names. One task
        then lists the volume again, each directory once. The decision depends on the volume, not on the order of
        tasks."""
        if walk.is_once(task):
            return False
        listed = self._listed[task.volume]
        listed[task.id] = done.directories
        volume = self._volumes[task.volume]
        if not walk.is_tangled(sum(listed.values()), volume.inodes):
            return False
        alone = walk.first_task(volume.index, volume.root_inode, once=True)
        if alone not in self.first_tasks:
            self.first_tasks = [alone if one.volume == volume.index else one for one in self.first_tasks]
            for known in listed:
                self.done["listing"].pop(known, None)
            self._forget(volume.index)
            if not self._is_known(alone):
                self._submit(alone, True)
        return True
