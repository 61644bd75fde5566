"""What a worker process keeps between its tasks, and the one function that does a task."""

import os
from typing import Any, Protocol

import pytsk3

from cheetah.triage.settings import Settings
from cheetah.triage.task import Problem, Result, Task, Volume


class Source(Protocol):
    """What is needed of an open source: `cheetah.open` gives it, and so does `RawFile`."""

    name: str
    size: int

    def pread(self, offset: int, length: int) -> bytes:
        """Bytes at an offset; fewer only at the end. What cannot be read is an OSError."""

    def close(self) -> None:
        """Gives it back."""


class Image(pytsk3.Img_Info):
    """A source as The Sleuth Kit reads it. It has no words for "unreadable": errors are noted here as well."""

    def __init__(self, source: Source, sector_size: int = 512):
        self._source = source
        self.unreadable: list[tuple[int, int, str]] = []
        super().__init__(url="", sector_size=sector_size)

    def get_size(self) -> int:
        """Bytes."""
        return self._source.size

    def read(self, offset: int, length: int) -> bytes:
        """Called by The Sleuth Kit."""
        try:
            return self._source.pread(offset, length)
        except OSError as error:
            self.unreadable.append((offset, length, error.strerror or str(error)))
            raise

    def close(self) -> None:
        """The source is closed by who opened it."""


class Worker:
    """A worker's belongings. `keep` is for the stages: compiled rules, opened lists, by a name of theirs."""

    def __init__(self, uri: str, settings: Settings, volumes: list[Volume] | None = None):
        self.uri = uri
        self.settings = settings
        self.volumes = volumes or []
        self.keep: dict[str, Any] = {}
        self.source = open_source(uri)
        self._images: dict[int, Image] = {}
        self._file_systems: dict[int, pytsk3.FS_Info] = {}

    def image(self, sector_size: int = 512) -> Image:
        """The source for pytsk3."""
        if sector_size not in self._images:
            self._images[sector_size] = Image(self.source, sector_size)
        return self._images[sector_size]

    def file_system(self, volume: int) -> pytsk3.FS_Info:
        """The file system of that volume, opened once. OSError where it cannot be opened."""
        if volume not in self._file_systems:
            found = self.volumes[volume]
            self._file_systems[volume] = pytsk3.FS_Info(self.image(found.sector_size), offset=found.start)
        return self._file_systems[volume]

    def close(self) -> None:
        """Lets go of everything."""
        self._file_systems.clear()
        self._images.clear()
        self.source.close()


def perform(task: Task, worker: Worker) -> Result:
    """Does a task. What cannot be read is in the result; an exception is a fault of ours, or of the worker's machine."""
    from cheetah.triage import content, unallocated, volumes, walk

    match task.stage:
        case "volumes":
            result = volumes.find(worker)
        case "listing":
            result = walk.listing(worker, task)
        case "content":
            result = content.analyse(worker, task.entries())
        case "unallocated":
            result = unallocated.scan(worker, task.volume, *task.what)
    return result


class RawFile:
    """A plain file as a source."""

    def __init__(self, path: str):
        self.name = os.path.basename(path)
        self._file = os.open(path, os.O_RDONLY)
        self.size = os.lseek(self._file, 0, os.SEEK_END)

    def pread(self, offset: int, length: int) -> bytes:
        """Bytes at an offset."""
        return os.pread(self._file, length, offset)

    def close(self) -> None:
        """Gives it back."""
        os.close(self._file)


def open_source(uri: str) -> Source:
    """Opens what the hub shares, or the source itself."""
    try:
        import cheetah
    except ImportError:
        return RawFile(uri)
    return cheetah.open(uri) if hasattr(cheetah, "open") else RawFile(uri)


__all__ = ["Image", "Problem", "RawFile", "Source", "Worker", "open_source", "perform"]
