"""Files are taken out of the image's file systems, archived, and sorted by what they are."""

from collections.abc import Sequence
from pathlib import Path

from cheetah.bench.storage.steps import volumes
from cheetah.bench.storage.steps.step import Base, Command, NotReached, Place, full

RECOVERED = "recovered"
UNWRITTEN = "tsk_recover could not write some of the files that it recovered"


class Recover(Base):
    """`tsk_recover -e`: files that are there and those that were deleted. Without `-e` it takes the deleted ones alone,
    and an image that has few of them would say nothing about writing many small files."""

    key = title = "tsk_recover"
    tools = ("tsk_recover", *volumes.TOOLS)

    def outputs(self, place: Place) -> Sequence[Path]:
        """A directory."""
        return (place.directory / RECOVERED,)

    def commands(self, place: Place) -> Sequence[Command]:
        """One for each file system, as it looks for no partitions; each into a directory of its own."""
        self.require(place)
        out = self.outputs(place)[0]
        out.mkdir(exist_ok=True)
        return [
            Command((self.key, "-e", *volume.at, str(place.image), str(out / str(volume.start))))
            for volume in volumes.volumes(place.source)
        ]

    def failure(self, place: Place, printed: str) -> str:
        """It ends with 0 also where it could not write."""
        return full(place, self.key) or (UNWRITTEN if "Error writing" in printed else "")


class Tar(Base):
    """What was recovered, many files, into one archive beside them."""

    key = title = "tar"
    tools = ("tar",)
    after = (Recover.key,)

    def needs(self, place: Place) -> Sequence[Path]:
        """What was recovered."""
        return (place.directory / RECOVERED,)

    def inputs(self, place: Place) -> Sequence[Path]:
        """Every file of it."""
        return sorted(path for path in self.needs(place)[0].rglob("*") if path.is_file() and not path.is_symlink())

    def outputs(self, place: Place) -> Sequence[Path]:
        """The archive."""
        return (place.directory / "recovered.tar",)

    def commands(self, place: Place) -> Sequence[Command]:
        """One."""
        if not self.inputs(place):
            raise NotReached("there are no recovered files: tsk_recover failed, was left out or found none")
        return (Command(("tar", "-C", str(place.directory), "-cf", str(self.outputs(place)[0]), RECOVERED)),)


class Sorter(Base):
    """`sorter`: what each file is, by its content, and whether its name says the same. It starts `icat` and `file` for
    each, so that it is rather a test of the processor."""

    key = title = "sorter"
    tools = ("sorter", "icat", "file", *volumes.TOOLS)

    def outputs(self, place: Place) -> Sequence[Path]:
        """A directory."""
        return (place.directory / "sorted",)

    def commands(self, place: Place) -> Sequence[Command]:
        """One for each file system, all into one directory, which has to be there."""
        self.require(place)
        out = self.outputs(place)[0]
        out.mkdir(exist_ok=True)
        # It hands these on to a shell, and a target's path may be a volume's label. Tools are started in the place.
        return [
            Command(("sorter", "-m", "/", "-d", out.name, "-f", volume.fs, *volume.at, place.image.name))
            for volume in volumes.volumes(place.source)
        ]

    def failure(self, place: Place, printed: str) -> str:
        """It ends with 0 also where it could not write."""
        return full(place, "sorter")
