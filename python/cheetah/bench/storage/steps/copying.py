"""The image is copied in from elsewhere."""

import os
from collections.abc import Sequence
from pathlib import Path

from cheetah.bench.storage.steps.step import Base, Command, NotReached, Place


class Copy(Base):
    """`cp`, every byte of it: holes are written as zeros and nothing is shared with the source."""

    key = "copy"
    title = "copy"
    tools = ("cp",)
    after = ()

    def needs(self, place: Place) -> Sequence[Path]:
        """Nothing that a step before it made."""
        return ()

    def inputs(self, place: Place) -> Sequence[Path]:
        """The image, elsewhere."""
        return (place.source,)

    def outputs(self, place: Place) -> Sequence[Path]:
        """The copy."""
        return (place.image,)

    def commands(self, place: Place) -> Sequence[Command]:
        """One."""
        if not place.source.exists():
            raise NotReached(f"the image {place.source} is gone")
        return (Command(("cp", "--sparse=never", "--reflink=never", "--", str(place.source), str(place.image))),)

    def warnings(self, place: Place) -> Sequence[str]:
        """That one device does both, where it does."""
        if os.stat(place.source).st_dev == os.stat(place.directory).st_dev:
            return ("the image lies on the target's own file system, which reads it while it writes the copy",)
        return ()
