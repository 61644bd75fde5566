"""The state that a worker process keeps between its tasks."""

from collections.abc import Callable, Sequence
from typing import Any

import pytsk3

from cheetah.triage.filesystem import exfat
from cheetah.triage.reading.image import Source, TskImage
from cheetah.triage.settings import Settings
from cheetah.triage.task import Volume


class Worker:
    """The state of a worker. Stages keep compiled rules and opened lists in `keep`, by name.

    `beat` is called at every read, which shows that the worker makes progress.
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
        self._images: dict[int, TskImage] = {}
        self._file_systems: dict[int, pytsk3.FS_Info] = {}

    def image(self, sector_size: int = 512) -> TskImage:
        """Returns the source for pytsk3."""
        if sector_size not in self._images:
            self._images[sector_size] = TskImage(self.source, sector_size, self.beat, near="://" not in self.uri)
        return self._images[sector_size]

    def file_system(self, volume: int) -> pytsk3.FS_Info:
        """Returns the file system of a volume, opened once. Raises OSError if it cannot be opened."""
        if volume not in self._file_systems:
            found = self.volumes[volume]
            self.correct(found.start, found.fs)
            kind = getattr(pytsk3, f"TSK_FS_TYPE_{found.fs.upper()}", pytsk3.TSK_FS_TYPE_DETECT)
            self._file_systems[volume] = pytsk3.FS_Info(self.image(), offset=found.start, type=kind)
        return self._file_systems[volume]

    def correct(self, start: int, fs: str) -> None:
        """Corrects what The Sleuth Kit is to see of the file system at `start`, so that it can be opened."""
        if fs == "exfat" and (corrected := exfat.correction(self.image().pread_noted, start)):
            self.image().correct(corrected.offset, corrected.content)

    def begin(self) -> None:
        """Begins a task."""
        for image in self._images.values():
            image.begin()

    def take_unreadable(self) -> list[tuple[int, int, str]]:
        """Returns the ranges that could not be read since the last call."""
        return [one for image in self._images.values() for one in image.take_unreadable()]

    def has_lost_its_source(self) -> bool:
        """Returns whether, in this task, it stopped asking a source that does not answer."""
        return any(image.gone for image in self._images.values())

    def close(self) -> None:
        """Closes everything."""
        self.keep.clear()
        self._file_systems.clear()
        self._images.clear()
        self.source.close()


def open_source(uri: str) -> Source:
    """Opens the shared source, or the source itself."""
    import cheetah

    return cheetah.open(uri)
