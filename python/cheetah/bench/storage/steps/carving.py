"""Files are carved out of the image by how they begin and end."""

from collections.abc import Sequence
from pathlib import Path

from cheetah.bench.storage.steps.step import Base, Command, Place

SCALPEL_CONFIG = Path(__file__).with_name("scalpel.conf")


class Carve(Base):
    """A carver that makes a directory of what it finds."""

    def __init__(self, tool: str, *options: str) -> None:
        self.key = self.title = tool
        self.tools = (tool,)
        self._options = options

    def outputs(self, place: Place) -> Sequence[Path]:
        """The directory."""
        return (place.directory / self.key,)

    def commands(self, place: Place) -> Sequence[Command]:
        """One."""
        self.require(place)
        return (Command((*self.tools, *self._options, "-o", str(self.outputs(place)[0]), str(place.image))),)

    def failure(self, place: Place, printed: str) -> str:
        """Scalpel ends with 0 where it could not open the image."""
        return "scalpel was unable to open the image" if "unable to open" in printed else ""

    def least_read_bytes(self, place: Place) -> int:
        """The image: it ends with 0 also where a read failed."""
        return place.image.stat().st_size


def carvers() -> list[Carve]:
    """Foremost looks for all it knows; Scalpel, of which every line of its own configuration is switched off, for a few
    common formats."""
    return [Carve("foremost", "-Q", "-t", "all"), Carve("scalpel", "-c", str(SCALPEL_CONFIG))]
