"""Recovering files from the image's file systems, archiving them, and sorting them by type."""

from collections.abc import Sequence
from pathlib import Path

from cheetah.bench.storage.steps import volumes
from cheetah.bench.storage.steps.step import Base, Command, NotReached, Workplace, full

RECOVERED = "recovered"
UNWRITTEN = "tsk_recover could not write some of the files that it recovered"


class Recover(Base):
    """`tsk_recover -e`: existing and deleted files. Without `-e` it recovers deleted ones alone; an image with few of
    them would not test writing many small files."""

    key = title = "tsk_recover"
    tools = ("tsk_recover", *volumes.TOOLS)

    def outputs(self, place: Workplace) -> Sequence[Path]:
        """A directory."""
        return (place.directory / RECOVERED,)

    def commands(self, place: Workplace) -> Sequence[Command]:
        """Returns one command for each file system, since it ignores partitions, each with its own directory."""
        self.require(place)
        out = self.outputs(place)[0]
        out.mkdir(exist_ok=True)
        return [
            Command((self.key, "-e", *volume.at, str(place.image), str(out / str(volume.start))))
            for volume in volumes.volumes(place.source)
        ]

    def failure(self, place: Workplace, printed: str) -> str:
        """Returns that it could not write, in spite of exit code 0."""
        return full(place, self.key) or (UNWRITTEN if "Error writing" in printed else "")


class Tar(Base):
    """`tar` of the recovered files, many of them small, into one archive."""

    key = title = "tar"
    tools = ("tar",)
    after = (Recover.key,)

    def needs(self, place: Workplace) -> Sequence[Path]:
        """Returns the directory of recovered files."""
        return (place.directory / RECOVERED,)

    def inputs(self, place: Workplace) -> Sequence[Path]:
        """Returns every recovered file."""
        return sorted(path for path in self.needs(place)[0].rglob("*") if path.is_file() and not path.is_symlink())

    def outputs(self, place: Workplace) -> Sequence[Path]:
        """The archive."""
        return (place.directory / "recovered.tar",)

    def commands(self, place: Workplace) -> Sequence[Command]:
        """One."""
        if not self.inputs(place):
            raise NotReached("there are no recovered files: tsk_recover failed, was left out or found none")
        return (Command(("tar", "-C", str(place.directory), "-cf", str(self.outputs(place)[0]), RECOVERED)),)


class Sorter(Base):
    """`sorter`: the type of each file by its content, and whether its name agrees. It starts `icat` and `file` for
    each, so it mostly tests the processor."""

    key = title = "sorter"
    tools = ("sorter", "icat", "file", *volumes.TOOLS)

    def outputs(self, place: Workplace) -> Sequence[Path]:
        """A directory."""
        return (place.directory / "sorted",)

    def commands(self, place: Workplace) -> Sequence[Command]:
        """Returns one command for each file system, all into one existing directory."""
        self.require(place)
        out = self.outputs(place)[0]
        out.mkdir(exist_ok=True)
        # It passes these to a shell, and a target's path may contain a volume's label. Tools are started in the place.
        return [
            Command(("sorter", "-m", "/", "-d", out.name, "-f", volume.fs, *volume.at, place.image.name))
            for volume in volumes.volumes(place.source)
        ]

    def failure(self, place: Workplace, printed: str) -> str:
        """Returns that it could not write, in spite of exit code 0."""
        return full(place, "sorter")
