"""Carving files out of the image by their headers and footers."""

from collections.abc import Sequence
from pathlib import Path

from cheetah.bench.storage.steps.step import Base, Command, Workplace

SCALPEL_CONFIG = Path(__file__).with_name("scalpel.conf")


class Carve(Base):
    """A carver that writes into a directory."""

    def __init__(self, tool: str, *options: str) -> None:
        self.key = self.title = tool
        self.tools = (tool,)
        self._options = options

    def outputs(self, place: Workplace) -> Sequence[Path]:
        """The directory."""
        return (place.directory / self.key,)

    def commands(self, place: Workplace) -> Sequence[Command]:
        """One."""
        self.require(place)
        return (Command((*self.tools, *self._options, "-o", str(self.outputs(place)[0]), str(place.image))),)

    def failure(self, place: Workplace, printed: str) -> str:
        """Returns that Scalpel could not open the image, in spite of exit code 0."""
        return "scalpel was unable to open the image" if "unable to open" in printed else ""

    def least_read_bytes(self, place: Workplace) -> int:
        """Returns the size of the image: a failed read ends with 0 as well."""
        return place.image.stat().st_size


def carvers() -> list[Carve]:
    """Returns the carvers: Foremost with all its formats; Scalpel, whose default configuration is all commented out,
    with a few common ones."""
    return [Carve("foremost", "-Q", "-t", "all"), Carve("scalpel", "-c", str(SCALPEL_CONFIG))]
