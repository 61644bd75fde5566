"""A private directory in a target, and everything to be taken down with it."""

import contextlib
import json
import os
import pwd
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cheetah.bench.failure import BenchError
from cheetah.bench.interrupts import uninterrupted
from cheetah.bench.process import Process
from cheetah.bench.storage.targets import mounts

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
        require_trusted(self._parent)
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


def require_trusted(directory: Path) -> None:
    """Raises BenchError if another user could rename files made in a directory and put links in their place, through
    which this user, perhaps root, would write and remove elsewhere."""
    for above in [directory.resolve(), *directory.resolve().parents]:
        try:
            status = above.stat()
        except OSError as error:
            raise BenchError(f"{above}: {error.strerror}") from error
        if status.st_uid not in _trusted() and not _is_private_mount(above):
            raise BenchError(
                f"{above} belongs to the user {_user(status.st_uid)}, who could replace what is written there: run this as"
                " that user, or name a directory of your own"
            )
        if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            raise BenchError(
                f"every user may replace what is written in {above}: `chmod +t {above}`, or name a directory of your own"
            )


def _trusted() -> set[int]:
    """Returns the users that may own a directory: root, the current one, and the caller of sudo."""
    return {0, os.geteuid(), int(os.environ.get("SUDO_UID", "0"))}


def _is_private_mount(directory: Path) -> bool:
    """Returns whether the kernel lets no other user enter, even if a server such as sshfs reports another owner."""
    mount = mounts.of(directory)
    return mount is not None and mount.fs.partition(".")[0] == "fuse" and "allow_other" not in mount.options.split(",")


def _user(number: int) -> str:
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(number).pw_name
    return str(number)


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
    return {"pid": pid, "started": started(pid), "boot": boot(), "host": os.uname().nodename, "out": str(out)}


def boot() -> str:
    """Returns the id of this machine's current boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def started(pid: int) -> str | None:
    """Returns when a process was started, in ticks since boot; with its process id that identifies it."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()[19]
