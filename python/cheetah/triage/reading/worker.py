"""The state that a worker process keeps between its tasks."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from cheetah.triage.reading.image import Source, TskImage
from cheetah.triage.settings import Settings
from cheetah.triage.task import Volume


class Worker:
    """The state of a worker. Stages keep compiled rules, opened lists and file systems in `keep`, by name.

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

    def image(self, sector_size: int = 512) -> TskImage:
        """Returns the source for pytsk3."""
        if sector_size not in self._images:
            self._images[sector_size] = TskImage(self.source, sector_size, self.beat, near="://" not in self.uri)
        return self._images[sector_size]

    def kept(self, name: str, key: Hashable, make: Callable[[], Any]) -> Any:
        """Returns the value stored under a name and a key, such as a volume; `make` makes it at its first use."""
        kept = self.keep.setdefault(name, {})
        if key not in kept:
            kept[key] = make()
        return kept[key]

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
        self._images.clear()
        self.source.close()


def open_source(uri: str) -> Source:
    """Opens the shared source, or the source itself."""
    import cheetah

    return cheetah.open(uri)
