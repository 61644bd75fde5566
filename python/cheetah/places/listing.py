"""Lists all volumes of a source: their files with their runs, and their free clusters.

The walk is that of a triage. A volume that cannot be listed as a whole is said to be so, with the reasons.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import pyarrow as pa

from cheetah import _native
from cheetah.places.files import Files
from cheetah.places.pipe import Pipe
from cheetah.triage.filesystem import allocation, allocation_maps, opening, volumes
from cheetah.triage.filesystem.logs import log_in
from cheetah.triage.listing import walk
from cheetah.triage.reading.reader import reason
from cheetah.triage.reading.worker import Worker
from cheetah.triage.settings import Settings
from cheetah.triage.task import Result, Task, Volume

_WITHOUT_FILES = ("Linux swap", "LVM2 physical volume", "member of a Linux software RAID")
"""What the names of formats without files begin with. What the volumes of several parts hold is listed, or said not to be."""
_FREE_AT_ONCE = 4096
_PROBLEMS_MAX = 20
_SENTENCE_MAX = 1000


class PipeWorker(Worker):
    """A worker that reads a source through pipes."""

    def __init__(self, source: Pipe, near: bool, settings: Settings | None = None):
        # It does not open the source, so the base class does not begin it.
        self.uri = "" if near else "pipe://"
        self.settings = settings or Settings(source="", out="")
        self.volumes = ()
        self.keep = {}
        self.source = source
        self.beat = lambda: None
        self._images = {}


def say_all(pipe: Pipe, order: dict[str, Any]) -> None:
    """Says the files of the source, their runs and the free clusters."""
    worker = PipeWorker(pipe, order["near"])
    say_volumes(pipe, order, worker, lambda volume: VolumeListing(worker, volume, pipe).say())


def say_volumes(
    pipe: Pipe, order: dict[str, Any], worker: PipeWorker, say: Callable[[Volume], None], needs_files: bool = False
) -> None:
    """Says the volumes of the source, and calls `say` for each that has a file system and is asked for. With `needs_files`, it is a problem
    of a volume if it is encrypted, or has a file system that is known and not listed: nothing is known of its files then."""
    unlocked = order["unlocked"] or {"opened": []}
    volumes_found = order["logical"]["volumes"]
    # Those in several pieces lie behind the end of what is searched.
    logical = {**order["logical"], "volumes": [one for one in volumes_found if one["offset"] < pipe.size]}
    apart = [_apart(one) for one in volumes_found if one["offset"] >= pipe.size and not one.get("is_used", False)]
    what = volumes.task(order["sector_size"], unlocked["opened"], order["locked"], logical, pipe.size)
    worker.begin()
    found = volumes.find(worker, what)
    worker.volumes = found.volumes
    if gaps := [*apart, *_gaps(found, -1)][:_PROBLEMS_MAX]:
        pipe.say(problems=gaps)
    for volume in found.volumes:
        problems = _gaps(found, volume.index)
        if needs_files and not volume.fs and not problems:
            problems = _not_listed(worker, volume, pipe.size)
        pipe.say(
            volume={
                "number": volume.index,
                "offset": volume.start,
                "len": volume.length,
                "fs": volume.fs,
                "description": said(volume.description),
                "problems": problems,
            }
        )
    for volume in found.volumes:
        if volume.fs and volume.index >= order["first"]:
            say(volume)
    pipe.say(end=True)
    pipe.flush()


def _apart(volume: Mapping[str, Any]) -> str:
    """Returns why the files of an array or a logical volume are not listed."""
    return said(f"{volume['description']} lies in several pieces of the source, so its files are not listed")


def said(sentence: str) -> str:
    """Returns a sentence as the other program understands it: of limited length, and without bytes that are no text."""
    return sentence[:_SENTENCE_MAX].encode("utf-8", "replace").decode("utf-8")


def _gaps(found: Result, volume: int) -> list[str]:
    """Returns why files may be missing of a volume, or -1 of the source, before any is listed."""
    sentences = [said(one.sentence) for one in found.problems if one.gap and one.volume == volume]
    return sentences[:_PROBLEMS_MAX]


def _not_listed(worker: PipeWorker, volume: Volume, size: int) -> list[str]:
    """Returns which formats a volume holds that may have files, a sentence each."""
    formats, _ = _native.identify(worker.image().pread_noted, size, volume.start, volume.length)
    worker.take_unreadable()
    names = [name for name, _ in formats if not name.startswith(_WITHOUT_FILES) and not log_in([name])]
    return [said(f"it holds {name}: files in it are not listed") for name in names[:_PROBLEMS_MAX]]


class Visitor(Protocol):
    """Takes the rows of the listing of a volume."""

    counts_names: bool

    def rows(self, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        """Returns those that it takes."""

    def say(self, row: dict[str, Any]) -> None:
        """Takes one."""


class VolumeListing:
    """The listing of a volume."""

    def __init__(self, worker: Worker, volume: Volume, pipe: Pipe):
        self._worker = worker
        self._volume = volume
        self._pipe = pipe
        self._problems: list[str] = []

    def say(self) -> None:
        """Says the files and the free clusters, and what is missing of them."""
        number = self._volume.index
        self._pipe.say(begin=number)
        # So that the other program knows where this one died.
        self._pipe.flush()
        self._worker.begin()
        try:
            self._all()
        except OSError as error:
            self._problem(reason(self._worker.take_unreadable(), error))
        except (MemoryError, RecursionError, ValueError, ArithmeticError, LookupError, SystemError) as error:
            # A hostile volume must not hide the files of the others.
            self._problem(f"a fault of this program: {type(error).__name__}: {error}")
        self._pipe.say(done={"number": number, "problems": self._problems[:_PROBLEMS_MAX]})
        self._worker.keep.pop("file systems", None)

    def _problem(self, sentence: str) -> None:
        if len(self._problems) < _PROBLEMS_MAX:
            self._problems.append(said(sentence))

    def _all(self) -> None:
        system = opening.file_system(self._worker, self._volume.index)
        files = Files(self._worker, self._volume, system, self._pipe, self._problem)
        self._files(files)
        if files.left_out:
            self._problem(f"{files.left_out} streams have more runs than are listed")
        self._free()

    def _files(self, files: Visitor) -> None:
        tasks = [walk.first_task(self._volume.index, self._volume.root_inode)]
        directories, once = 0, False
        while tasks:
            task = tasks.pop()
            directories += self._task(task, tasks, files)
            if not once and walk.is_tangled(directories, self._volume.inodes):
                # Each directory once, from the start. Files that were said already are not said again, nor counted as further names.
                once = True
                files.counts_names = False
                tasks = [walk.first_task(self._volume.index, self._volume.root_inode, once=True)]

    def _task(self, task: Task, tasks: list[Task], files: Visitor) -> int:
        """Lists the directories of a task, and puts off those that it puts off. Returns their number."""
        self._worker.begin()
        result = walk.listing(self._worker, task)
        tasks += reversed(result.tasks)
        for problem in result.problems:
            if problem.is_missing:
                self._problem(f"{problem.path or ''}: {problem.sentence}".removeprefix(": "))
        for offset, length, why in self._worker.take_unreadable():
            self._problem(f"{length} bytes at {offset} could not be read: {why}")
        if result.rows is not None:
            # As Python objects, the rows of a large directory take several times the memory.
            for batch in result.rows.to_batches():
                for row in files.rows(batch):
                    files.say(row)
        return result.directories

    def _free(self) -> None:
        """Says which clusters are free, if that is known."""
        volume = self._volume
        maps = allocation_maps.AllocationMaps(self._worker)
        try:
            found = maps.of(volume.index)
        except allocation.Unknown:
            return
        except allocation_maps.Unreadable as error:
            self._problem(f"the record of free clusters could not be read: {error}")
            return
        self._pipe.say(clusters=[volume.start + found.origin, found.end - found.origin])
        free: list[tuple[int, int]] = []
        for begin, length in found.free(0, volume.length):
            free.append((volume.start + begin, length))
            if len(free) == _FREE_AT_ONCE:
                self._pipe.say(free=free)
                free = []
        if free:
            self._pipe.say(free=free)
