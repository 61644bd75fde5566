"""Extracting unallocated space of every file system in the image."""

from collections.abc import Sequence
from pathlib import Path

from cheetah.bench.storage.steps import volumes
from cheetah.bench.storage.steps.step import Base, Command, Workplace


class Unallocated(Base):
    """`blkls`, one file for each file system."""

    key = "unallocated"
    title = "extract unallocated"
    tools = ("blkls", *volumes.TOOLS)

    def outputs(self, place: Workplace) -> Sequence[Path]:
        """The extracts."""
        return sorted(place.directory.glob("unallocated-*.raw"))

    def commands(self, place: Workplace) -> Sequence[Command]:
        """One for each file system."""
        self.require(place)
        # Ask the source about its file systems, not the copy, which must stay out of the cache.
        return [
            Command(("blkls", *volume.at, str(place.image)), place.directory / f"unallocated-{volume.start}.raw")
            for volume in volumes.volumes(place.source)
        ]
