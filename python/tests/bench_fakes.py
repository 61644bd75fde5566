"""Fake targets and steps: plain directories, and small programs in Python."""

import contextlib
import dataclasses
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from cheetah.bench.failure import BenchError
from cheetah.bench.storage.run.progress import Event
from cheetah.bench.storage.run.runner import run
from cheetah.bench.storage.settings import Settings, TargetSpec
from cheetah.bench.storage.steps import Base, Command, Step, Workplace
from cheetah.bench.storage.targets.target import ReadyTarget, Target

IMAGE_BYTES = 1 << 20
MEMORY_BYTES = 256 << 20


@dataclasses.dataclass(frozen=True)
class Directory:
    """A directory as a target."""

    path: Path
    pages_of: tuple[Path, ...] = ()

    @property
    def name(self) -> str:
        return self.path.name

    @contextlib.contextmanager
    def enter(self, need_bytes: int) -> Iterator[ReadyTarget]:
        try:
            made = tempfile.TemporaryDirectory(dir=self.path)
        except OSError as error:
            raise BenchError(f"{self.path}: {error.strerror}") from error
        with made as directory:
            number = self.path.stat().st_dev
            yield ReadyTarget(Path(directory), f"{number >> 8}:{number & 255}", self.pages_of, about={"of": "a test"})


class Fake(Base):
    """A step that is a Python program. Its arguments are the paths of the image, of its output and of the source; its
    output goes to the output file."""

    def __init__(self, key: str, code: str, after: tuple[str, ...] = (), tools: tuple[str, ...] = ()) -> None:
        self.key = self.title = key
        self.tools = tools or (sys.executable,)
        self.after = after
        self._code = code

    def needs(self, place: Workplace) -> Sequence[Path]:
        return [place.directory / key for key in self.after]

    def inputs(self, place: Workplace) -> Sequence[Path]:
        return self.needs(place) or [place.source]

    def outputs(self, place: Workplace) -> Sequence[Path]:
        return [place.directory / self.key]

    def commands(self, place: Workplace) -> Sequence[Command]:
        self.require(place)
        words = (*self.inputs(place), *self.outputs(place))
        return [Command((sys.executable, "-I", "-S", "-c", self._code, *map(str, words)), place.directory / self.key)]


COPY = "import sys; sys.stdout.buffer.write(open(sys.argv[1], 'rb').read())"
"""A step that reads its input and writes as much."""


@dataclasses.dataclass
class Measured:
    """The outcome of a run."""

    code: int
    part: dict[str, Any]
    events: list[Event]

    def outcomes(self) -> dict[tuple[str, str], list[str]]:
        """By step and target."""
        found: dict[tuple[str, str], list[str]] = {}
        for sample in self.part["samples"]:
            found.setdefault((sample["step"], sample["target"]), []).append(str(sample["outcome"]))
        return found

    def sample(self, step: str, target: str) -> dict[str, Any]:
        """The first sample of a step on a target."""
        return next(one for one in self.part["samples"] if (one["step"], one["target"]) == (step, target))


def settings(out: Path, targets: Sequence[Target], **more: Any) -> Settings:
    """Returns settings for targets made here."""
    specs = tuple(TargetSpec(target.name, Path("/")) for target in targets)
    return Settings(specs, specs[0].name, out, **{"repetitions": 1, **more})


def measured(directory: Path, targets: Sequence[Target], steps: Sequence[Step], **more: Any) -> Measured:
    """Runs these steps on these targets, with results in `directory`/out."""
    source = directory / "source.raw"
    if not source.exists():
        source.write_bytes(b"x" * IMAGE_BYTES)
    events: list[Event] = []
    code, part = run(settings(directory / "out", targets, **more), events.append, targets, steps, source, 0)
    return Measured(code, part, events)


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory, if the machine has one: it is fast and the same everywhere."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK) or os.statvfs(memory).f_bavail * os.statvfs(memory).f_frsize < MEMORY_BYTES:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="cheetah-test-", dir=memory) as directory:
        yield Path(directory)


def directories(directory: Path, *names: str) -> list[Directory]:
    """New ones."""
    for name in names:
        (directory / name).mkdir()
    return [Directory(directory / name) for name in names]
