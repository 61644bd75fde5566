"""A private directory in a target, and everything to be taken down with it."""

import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cheetah.bench.failure import BenchError
from cheetah.bench.interrupts import uninterrupted
from cheetah.bench.process import Process
from cheetah.bench.system import machine, mounts, owner

PREFIX = "cheetah-bench-"
MARKER = "made-by-cheetah-bench.json"


class WorkDirectory:
    """A new directory within `parent`, for this user alone. Processes, mounts and files made in it are gone when the
    `with` block is left, in reverse order, and so is the directory. It records `out`, so that it can be attributed
    after a power cut.

    Raises BenchError if it cannot be made, or not be taken down completely.
    """

    def __init__(self, parent: Path, out: Path) -> None:
        self._parent = parent
        self._out = out
        self._exits = contextlib.ExitStack()
        self._problems: list[str] = []
        self._count = 0

    def __enter__(self) -> Self:
        owner.require_trusted(self._parent)
        made: list[Path] = []
        try:
            with uninterrupted():
                made.append(Path(tempfile.mkdtemp(prefix=PREFIX, dir=self._parent)))
                (made[0] / MARKER).write_text(json.dumps(_identity(self._out)), encoding="utf-8")
        except BaseException as error:
            for directory in made:
                shutil.rmtree(directory, ignore_errors=True)
            if isinstance(error, OSError):
                raise BenchError(f"{self._parent}: a directory cannot be created there: {error.strerror}") from error
            raise
        self.directory = made[0]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with uninterrupted():
            self._exits.close()
            self._attempt(remove, self.directory)
        if self._problems:
            said = "; ".join(self._problems)
            if error is None:
                raise BenchError(said)
            print(f"warning: {said}", file=sys.stderr)

    def at_exit(self, action: Callable[..., Any], *arguments: Any) -> None:
        """Calls an action at the end. Its failure does not stop the others."""
        self._exits.callback(self._attempt, action, *arguments)

    def _attempt(self, action: Callable[..., Any], *arguments: Any) -> None:
        try:
            action(*arguments)
        except (BenchError, OSError) as error:
            self._problems.append(str(error))

    def unique(self, stem: str) -> str:
        """Returns a name that is unique in this directory."""
        self._count += 1
        return f"{stem}-{self._count}"

    def path(self, stem: str) -> str:
        """Returns a unique path for a file."""
        return str(self.directory / self.unique(stem))

    def make_dir(self, stem: str) -> str:
        """Creates a new directory."""
        path = self.path(stem)
        os.mkdir(path, 0o700)
        return path

    def start(self, name: str, argv: Sequence[str]) -> Process:
        """Starts a process that is ended with this directory."""
        # Interrupted between its start and its entry here, it would be left running.
        with uninterrupted():
            process = Process(name, argv, self.path("log"))
            self.at_exit(process.stop)
        return process


def parent() -> Path:
    """Returns where mount points and drive files are while a drive exists."""
    # Python tries the directory with a file, which it would leave when interrupted.
    with uninterrupted():
        return Path(tempfile.gettempdir())


def remove(directory: Path) -> None:
    """Removes a private directory without following links or touching mounts in it. Raises BenchError with what
    remains."""
    mounted = mounts.below(directory)
    if mounted:
        raise BenchError(f"{mounted[0]} is still mounted: `umount {mounted[0]}`, then remove {directory}")
    try:
        shutil.rmtree(directory)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise BenchError(f"{directory} could not be removed: {error.strerror}; remove it") from error


def _identity(out: Path) -> dict[str, Any]:
    """Returns the identity of this process, which shows later whether it is alive."""
    pid = os.getpid()
    host = machine.host()["host"]
    return {"pid": pid, "started": owner.started(pid), "boot": owner.boot(), "host": host, "out": str(out)}
