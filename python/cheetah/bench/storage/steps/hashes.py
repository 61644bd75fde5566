"""Hashing the image; the digest is written into the target."""

from collections.abc import Sequence
from pathlib import Path

from cheetah.bench.storage.steps.step import Base, Command, Workplace


class Hash(Base):
    """md5sum, sha256sum."""

    def __init__(self, tool: str) -> None:
        self.key = self.title = tool
        self.tools = (tool,)

    def outputs(self, place: Workplace) -> Sequence[Path]:
        """The digest."""
        return (place.directory / f"image.{self.key}",)

    def commands(self, place: Workplace) -> Sequence[Command]:
        """One."""
        self.require(place)
        return (Command((*self.tools, "--", str(place.image)), self.outputs(place)[0]),)
