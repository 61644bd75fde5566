"""A directory target, on any disk, array, share or mounted drive."""

import collections
import contextlib
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

from cheetah.bench.failure import BenchError
from cheetah.bench.storage.targets import filesystem, mounts
from cheetah.bench.storage.targets.target import ReadyTarget
from cheetah.bench.storage.targets.work import WorkDirectory
from cheetah.bench.units import MIB

IN_MEMORY = ("tmpfs", "ramfs")

# The margin for directories, journals and small files.
MARGIN_BYTES = 16 * MIB


class SpaceReservations:
    """The bytes that the concurrent targets of a run will still write on each file system."""

    def __init__(self) -> None:
        self._promised: collections.Counter[int] = collections.Counter()

    @contextlib.contextmanager
    def promised(self, directory: Path, need_bytes: int) -> Iterator[None]:
        """Reserves space. Raises BenchError if less is free, besides the other reservations."""
        number = os.stat(directory).st_dev
        require_space(directory, need_bytes, self._promised[number])
        self._promised[number] += need_bytes
        try:
            yield
        finally:
            self._promised[number] -= need_bytes


@dataclasses.dataclass(frozen=True)
class DirectoryTarget:
    """A directory; with `fs`, a file in it with that file system."""

    name: str
    directory: Path
    out: Path
    """The directory of the results, recorded in directories made in the target."""
    file_bytes: int
    """The largest file that will be written."""
    room: SpaceReservations
    fs: str | None = None
    readahead_bytes: int | None = None

    @contextlib.contextmanager
    def enter(self, need_bytes: int) -> Iterator[ReadyTarget]:
        """Makes a new directory in it, which is removed afterwards."""
        size = need_bytes
        if self.fs is not None:
            filesystem.check(self.fs, self.file_bytes)
            size = filesystem.size_for(self.fs, need_bytes)
        self._check()
        with contextlib.ExitStack() as stack:
            with contextlib.ExitStack() as promise:
                promise.enter_context(self.room.promised(self.directory, size + MARGIN_BYTES))
                work = stack.enter_context(WorkDirectory(self.directory, self.out))
                try:
                    ready = self._plain(work) if self.fs is None else self._with_fs(work, self.fs, size)
                except OSError as error:
                    raise BenchError(f"{self.directory}: {error.strerror}") from error
                if self.fs is None:
                    # It is yet to be written; a file with a file system has its space allocated.
                    stack.enter_context(promise.pop_all())
            yield ready

    def _check(self) -> None:
        """Checks the directory before a byte is written."""
        if not self.directory.is_dir():
            raise BenchError(f"{self.directory} is not a directory: name an existing one")
        mount = mounts.of(self.directory)
        if mount and "ro" in mount.options.split(","):
            raise BenchError(f"{self.directory} is read-only: {mount.point} is mounted read-only")
        if not os.access(self.directory, os.W_OK | os.X_OK):
            raise BenchError(f"{self.directory} cannot be written to by this user")

    def _plain(self, work: WorkDirectory) -> ReadyTarget:
        directory = Path(work.make_dir("files"))
        mount = mounts.of(directory)
        device = mounts.device(mount) if mount else None
        facts = {"directory": str(self.directory), **about(mount, device, directory)}
        return ReadyTarget(directory, device, always_cached=mount is not None and mount.fs in IN_MEMORY, about=facts)

    def _with_fs(self, work: WorkDirectory, fs: str, size_bytes: int) -> ReadyTarget:
        path = work.directory / f"{work.directory.name}.{fs}"
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            # All at once: a disk that fills up halfway would break the file system.
            os.posix_fallocate(handle, 0, size_bytes)
        finally:
            os.close(handle)
        disk = filesystem.on(work, path, fs, self.readahead_bytes)
        below = mounts.of(self.directory)
        facts = {
            "directory": str(self.directory), "on": below.fs if below else "?", **disk.about, "free": free(disk.directory)
        }  # fmt: skip
        files = disk.directory / "files"
        files.mkdir(mode=0o700)
        return ReadyTarget(files, disk.device, (path,), about=facts)


def require_space(directory: Path, need_bytes: int, promised_bytes: int = 0) -> None:
    """Raises BenchError if a directory's file system has less than that free, besides reservations for others."""
    space = os.statvfs(directory)
    there = space.f_bavail * space.f_frsize
    if there - promised_bytes < need_bytes:
        others = f" besides {promised_bytes / MIB:,.0f} MiB for other targets there" if promised_bytes else ""
        raise BenchError(
            f"{directory} has {there / MIB:,.0f} MiB free, and {need_bytes / MIB:,.0f} MiB are needed{others}:"
            " make room, or take a smaller image"
        )


def free(directory: Path) -> str:
    """Returns the free space, for reports."""
    space = os.statvfs(directory)
    return f"{space.f_bavail * space.f_frsize / MIB:,.0f} MiB"


def about(mount: mounts.Mount | None, device: str | None, directory: Path) -> dict[str, str]:
    """Returns the description of a directory's file system, for reports."""
    if mount is None:
        return {"free": free(directory), "device": "unknown: the kernel does not report it"}
    facts = {"file system": mount.fs, "mounted at": str(mount.point), "mount options": mount.options}
    if device is None:
        facts["device"] = f"{mount.source}: not one block device, so what it moves is not counted"
    else:
        facts["device"] = mounts.name_of(device)
    bdi = Path(f"/sys/class/bdi/{mount.device}/read_ahead_kb")
    if bdi.exists():
        facts["read-ahead"] = f"{int(bdi.read_text(encoding='ascii'))} KiB"
    return {**facts, "free": free(directory)}
