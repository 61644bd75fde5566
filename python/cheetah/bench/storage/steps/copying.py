"""Copying the image in."""

import os
from collections.abc import Sequence
from pathlib import Path

from cheetah.bench.storage.steps.step import Base, Command, NotReached, Workplace
from cheetah.bench.storage.targets import mounts


class Copy(Base):
    """`cp` of every byte: holes are written as zeros, and nothing is shared with the source."""

    key = "copy"
    title = "copy"
    tools = ("cp",)
    after = ()

    def needs(self, place: Workplace) -> Sequence[Path]:
        """Returns nothing: no step is needed before."""
        return ()

    def inputs(self, place: Workplace) -> Sequence[Path]:
        """Returns the image, unless it is always in memory."""
        return () if _in_memory(place) else (place.source,)

    def outputs(self, place: Workplace) -> Sequence[Path]:
        """The copy."""
        return (place.image,)

    def commands(self, place: Workplace) -> Sequence[Command]:
        """One."""
        if not place.source.is_file():
            raise NotReached(f"the image {place.source} is gone")
        return (Command(("cp", "--sparse=never", "--reflink=never", "--", str(place.source), str(place.image))),)

    def warnings(self, place: Workplace) -> Sequence[str]:
        """Warns if reading the image may count."""
        if _in_memory(place):
            return ("the image is read from a file system in memory (tmpfs): only writing is measured",)
        if os.stat(place.source).st_dev == os.stat(place.directory).st_dev:
            return ("the image is on the target's own file system, which reads it while it writes the copy",)
        return ()


def _in_memory(place: Workplace) -> bool:
    mount = mounts.of(place.source)
    return mount is not None and mount.fs in ("tmpfs", "ramfs")
