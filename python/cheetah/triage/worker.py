"""What a worker process keeps between its tasks, and the one function that does a task."""

import errno
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import pytsk3

from cheetah.triage.settings import Settings
from cheetah.triage.task import Problem, Result, Task, Volume

UNREADABLE_MAX = 1000
GONE_S = 30.0
"""When no read has succeeded for so long, the rest of a task's reads fail at once: each would take the whole
time-out."""
READ_AHEAD_BYTES = 64 << 10
"""What The Sleuth Kit reads at once where it is asked for less."""


class Source(Protocol):
    """What is needed of an open source; `cheetah.Device` is one."""

    name: str
    size: int

    def pread(self, offset: int, length: int) -> bytes:
        """Bytes at an offset; fewer only at the end. What cannot be read is an OSError."""

    def close(self) -> None:
        """Gives it back."""


class Image(pytsk3.Img_Info):
    """A source as The Sleuth Kit reads it. That has no words for "unreadable", so errors are noted here as well."""

    def __init__(self, source: Source, sector_size: int = 512, read: Callable[[], None] = lambda: None):
        self._source = source
        self._read = read
        self._ahead: tuple[int, int] | None = None
        self._failing_since_s: float | None = None
        self.unreadable: list[tuple[int, int, str]] = []
        """Offset and length in bytes, and why; the last ones, at most `UNREADABLE_MAX`."""
        super().__init__(url="", sector_size=sector_size)

    def get_size(self) -> int:
        """Bytes."""
        return self._source.size

    def read(self, offset: int, length: int) -> bytes:
        """Called by The Sleuth Kit. What cannot be read is noted, and nothing is returned: after an exception in here
        pytsk3 fails even where The Sleuth Kit was only reading ahead, which it does 64 KiB at a time; it then tries
        what it needs alone, and if that can be read, nothing is amiss."""
        self._read()
        ahead, self._ahead = self._ahead, None
        try:
            if self._failing_since_s is not None and time.monotonic() - self._failing_since_s > GONE_S:
                raise OSError(errno.EIO, f"the source has answered nothing for {GONE_S:.0f} s")
            piece = self._source.pread(offset, length)
        except OSError as error:
            self._failing_since_s = self._failing_since_s or time.monotonic()
            if len(self.unreadable) < UNREADABLE_MAX:
                self.unreadable.append((offset, length, error.strerror or str(error)))
                if ahead is None and length <= READ_AHEAD_BYTES:
                    self._ahead = (offset, length)
            return b""
        self._failing_since_s = None
        if ahead is not None and ahead[0] <= offset < ahead[0] + ahead[1] and self.unreadable:
            self.unreadable.pop()
        return piece

    def begin(self) -> None:
        """The beginning of a task: what could not be read before is worth another try."""
        self.unreadable = []
        self._failing_since_s = None

    def take_unreadable(self) -> list[tuple[int, int, str]]:
        """What could not be read since it was last asked."""
        taken, self.unreadable = self.unreadable, []
        return taken

    def close(self) -> None:
        """The source is closed by who opened it."""


class Worker:
    """A worker's belongings. `keep` is for the stages: compiled rules, opened lists, by a name of theirs.

    `beat` is called at every read, so that somebody can see that this worker is getting on.
    """

    def __init__(
        self, uri: str, settings: Settings, volumes: Sequence[Volume] = (), beat: Callable[[], None] = lambda: None
    ):
        self.uri = uri
        self.settings = settings
        self.volumes = volumes
        self.keep: dict[str, Any] = {}
        self.source = open_source(uri)
        self.beat = beat
        self._images: dict[int, Image] = {}
        self._file_systems: dict[int, pytsk3.FS_Info] = {}

    def image(self, sector_size: int = 512) -> Image:
        """The source for pytsk3."""
        if sector_size not in self._images:
            self._images[sector_size] = Image(self.source, sector_size, self.beat)
        return self._images[sector_size]

    def file_system(self, volume: int) -> pytsk3.FS_Info:
        """The file system of that volume, opened once. OSError where it cannot be opened."""
        if volume not in self._file_systems:
            self._file_systems[volume] = pytsk3.FS_Info(self.image(), offset=self.volumes[volume].start)
        return self._file_systems[volume]

    def begin(self) -> None:
        """The beginning of a task."""
        for image in self._images.values():
            image.begin()

    def take_unreadable(self) -> list[tuple[int, int, str]]:
        """What none of its images could read, since they were last asked."""
        return [one for image in self._images.values() for one in image.take_unreadable()]

    def close(self) -> None:
        """Lets go of everything."""
        self.keep.clear()
        self._file_systems.clear()
        self._images.clear()
        self.source.close()


def perform(task: Task, worker: Worker) -> Result:
    """Does a task. What cannot be read is in the result; an exception is a fault of ours, or of the worker's
    machine."""
    worker.begin()
    match task.stage:
        case "volumes":
            from cheetah.triage import volumes

            result = volumes.find(worker)
        case "listing":
            from cheetah.triage import walk

            result = walk.listing(worker, task)
        case "content":
            from cheetah.triage import content

            result = content.analyse(worker, task.entries())
        case "unallocated":
            from cheetah.triage import unallocated

            start, length = task.what
            result = unallocated.scan(worker, task.volume, start, length)
    if task.stage in ("volumes", "listing"):
        for offset, length, why in worker.take_unreadable():
            result.problems.append(Problem(task.stage, f"could not be read: {why}", task.volume, None, offset, length))
    return result


def open_source(uri: str) -> Source:
    """Opens what the hub shares, or the source itself."""
    import cheetah

    return cheetah.open(uri)
