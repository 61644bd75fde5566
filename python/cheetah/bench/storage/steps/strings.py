"""Extracting strings."""

from collections.abc import Sequence
from pathlib import Path

from cheetah.bench.storage.steps.step import Base, Command, Workplace, full


class Strings(Base):
    """The whole image (`-a`), with the decimal offset of each string (`-t d`), as for an index.

    One pass, for ASCII. Examiners make a second one for UTF-16 (`-e l`), which reads the same and works as hard.
    """

    key = title = "strings"
    tools = ("strings",)

    def outputs(self, place: Workplace) -> Sequence[Path]:
        """The index."""
        return (place.directory / "image.strings",)

    def commands(self, place: Workplace) -> Sequence[Command]:
        """One."""
        self.require(place)
        argv = ("strings", "-a", "-t", "d", "--", str(place.image))
        return (Command(argv, self.outputs(place)[0]),)

    def failure(self, place: Workplace, printed: str) -> str:
        """Returns that it could not write, in spite of exit code 0."""
        return full(place, "strings")

    def least_read_bytes(self, place: Workplace) -> int:
        """Returns the size of the image: a failed read ends with 0 as well."""
        return place.image.stat().st_size
