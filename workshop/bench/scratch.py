"""Temporary files and processes of a run, removed and stopped at its end."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self, TypeVar

from cheetah.bench.process import Process
from cheetah.bench.units import MIB

RAM_DIR = "/dev/shm"
DISK_DIR = os.environ.get("BENCH_DISK_DIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "out"))
T = TypeVar("T")


class Scratch:
    """Temporary files in RAM and on disk, and child processes; all are gone when the `with` block is left.

    Files that must be on a disk go to `disk_parent`, which is created if missing: `workshop/bench/out`, or $BENCH_DISK_DIR.
    """

    def __init__(self, disk_parent: str = DISK_DIR) -> None:
        self._disk_parent = disk_parent

    def __enter__(self) -> Self:
        self._exits = contextlib.ExitStack()
        self._count = 0
        try:
            self.dir = self._make_dir(tempfile.gettempdir())
            self.ram_dir = self._make_dir(RAM_DIR)
            os.makedirs(self._disk_parent, exist_ok=True)
            self.disk_dir = self._make_dir(self._disk_parent)
        except BaseException:
            self._exits.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._exits.__exit__(kind, problem, trace)

    def _make_dir(self, parent: str) -> str:
        path = tempfile.mkdtemp(prefix="cheetah-bench-", dir=parent)
        self._exits.callback(shutil.rmtree, path, ignore_errors=True)
        return path

    def at_exit(self, action: Callable[..., Any], *arguments: Any) -> None:
        """Calls an action at the end, in reverse order."""
        self._exits.callback(action, *arguments)

    def enter(self, context: AbstractContextManager[T]) -> T:
        """Enters a context manager that is left at the end."""
        return self._exits.enter_context(context)

    def unique(self, stem: str) -> str:
        """Returns a name that is unique in this run."""
        self._count += 1
        return f"{stem}-{self._count}"

    def path(self, stem: str) -> str:
        """Returns a unique path for a small file or a socket."""
        return os.path.join(self.dir, self.unique(stem))

    def make_dir(self, stem: str) -> str:
        """Creates a new directory."""
        path = self.path(stem)
        os.mkdir(path)
        return path

    def start(self, name: str, argv: Sequence[str]) -> Process:
        """Starts a process that is ended with this scratch space."""
        process = Process(name, argv, self.path("log"))
        self.at_exit(process.stop)
        return process

    def child(self) -> "Scratch":
        """Returns a nested scratch space for one round; use it with `with`."""
        return Scratch(self._disk_parent)


def drop_caches() -> None:
    """Drops all of the machine's caches; needs root."""
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
        file.write("3")


def warmest(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> float:
    """Returns the largest share of an image that was in memory when a turn began."""
    return max(float(sample["resident"]) for turns in results.values() for sample in turns)


def write_random(path: str, size_bytes: int) -> str:
    """Fills a file with random bytes: no zero pages, nothing to compress. Returns the path."""
    with open(path, "wb") as file:
        left = size_bytes
        while left > 0:
            left -= file.write(os.urandom(min(MIB, left)))
    return path
