"""What can be read in the image as text."""

from collections.abc import Sequence
from pathlib import Path

from cheetah.bench.storage.steps.step import Base, Command, Place, full


class Strings(Base):
    """All of the image (`-a`), with the decimal offset of each string (`-t d`), which is how an index of it is made.

    One pass, for ASCII. Examiners make a second one for UTF-16 (`-e l`); it reads the same and works as hard.
    """

    key = title = "strings"
    tools = ("strings",)

    def outputs(self, place: Place) -> Sequence[Path]:
        """The index."""
        return (place.directory / "image.strings",)

    def commands(self, place: Place) -> Sequence[Command]:
        """One."""
        self.require(place)
        argv = ("strings", "-a", "-t", "d", "--", str(place.image))
        return (Command(argv, self.outputs(place)[0]),)

    def failure(self, place: Place, printed: str) -> str:
        """It ends with 0 also where it could not write."""
        return full(place, "strings")

    def least_read_bytes(self, place: Place) -> int:
        """The image: it ends with 0 also where a read failed."""
        return place.image.stat().st_size
