"""The page cache's share of files: dropped, filled, and measured."""

import ctypes
import errno
import mmap
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from cheetah.bench.storage.measurement import tool
from cheetah.bench.storage.targets import mounts
from cheetah.bench.units import MIB

SYNC = ("sync", "-f", ".")
"""Flushes the file system that it is started in."""
SYNC_EACH = ("find", ".", "-xdev", "-type", "f", "-newer", "{since}", "-exec", "sync", "--", "{}", "+")
"""Flushes each file changed after `since`. FUSE does not pass `syncfs` on to the server of, say, sshfs; it passes `fsync`."""
TIMES_S = 2
"""How much older than now `since` is made: a server may round times to seconds."""
SYNC_LIMIT_S = 1800.0
_DROP = "/proc/sys/vm/drop_caches"
_WINDOW_BYTES = 256 * MIB
"""The part of a file examined at once."""
_NOT_RESIDENT = bytes(range(0, 256, 2))
"""In `mincore`'s result for a page only the lowest bit has a meaning."""
_LIBC = ctypes.CDLL(None, use_errno=True)


def flush_words(directory: Path, since: Path) -> tuple[str, ...]:
    """Returns the command that flushes to the far side all data written in `directory` from now on. On FUSE it uses
    `since`, a file outside the directory, as a time stamp."""
    mount = mounts.of(directory)
    if mount is None or mount.fs.partition(".")[0] != "fuse":
        return SYNC
    since.touch()
    now = since.stat().st_mtime
    os.utime(since, (now - TIMES_S, now - TIMES_S))
    return tuple(word.format(since=since) if word == "{since}" else word for word in SYNC_EACH)


def sync(directory: Path, limit_s: float = SYNC_LIMIT_S) -> None:
    """Waits until the file system of `directory` has been flushed to its device.

    It runs in its own process, since a device that does not answer would block this one for ever. Raises tool.TimedOut
    at the limit, OSError if the device reports an error.
    """
    with tool.Tool(SYNC, directory) as one:
        flushed(one, limit_s)


def flushed(one: tool.Tool, limit_s: float) -> tool.ToolRun:
    """Runs a flush command, and returns its measurements."""
    ran = one.run(limit_s)
    if ran.exit_code:
        raise OSError(errno.EIO, f"the data could not be flushed to the device: {ran.last_words}")
    return ran


def drops_all() -> bool:
    """Returns whether `make_cold` may drop all caches, including those of directories and file systems."""
    try:
        with open(_DROP, "w", encoding="ascii"):
            return True
    except OSError:
        # Not root, or in a container.
        return False


def make_cold(paths: Sequence[Path], *directories: Path) -> None:
    """Drops these files from memory: as root all caches, otherwise as far as the kernel agrees. Flushes their file
    systems and those of `directories` first. `resident_share` returns what remains.

    Raises OSError or tool.TimedOut.
    """
    found = list(files(paths))
    _sync_all([*directories, *(path.parent for path in found)])
    if drops_all():
        Path(_DROP).write_text("3", encoding="ascii")
        return
    for path in found:
        _forget(path)


def make_warm(paths: Sequence[Path], *directories: Path) -> None:
    """Reads these files into memory, as far as there is room. Flushes their file systems and those of `directories`
    first. Raises OSError or tool.TimedOut."""
    found = list(files(paths))
    _sync_all([*directories, *(path.parent for path in found)])
    buffer = bytearray(MIB)
    for path in found:
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def resident_share(paths: Sequence[Path]) -> float | None:
    """Returns the share of these files in memory, 0 to 1; None if there are none, or if the kernel does not tell for
    one of them.

    A directory stands for the files in it.
    """
    pages = resident = 0
    for path in files(paths):
        counted = _resident(path)
        if counted is None:
            return None
        resident += counted[0]
        pages += counted[1]
    return resident / pages if pages else None


def files(paths: Iterable[Path]) -> Iterator[Path]:
    """Yields the regular files among and below these; links below them are not followed."""
    for path in paths:
        if path.is_dir():
            for parent, _, names in os.walk(path):
                found = (Path(parent, name) for name in names)
                yield from (file for file in found if file.is_file() and not file.is_symlink())
        elif path.is_file():
            yield path


def _sync_all(directories: Iterable[Path]) -> None:
    """Flushes each file system once."""
    for directory in {os.stat(directory).st_dev: directory for directory in directories}.values():
        sync(directory)


def _forget(path: Path) -> None:
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _resident(path: Path) -> tuple[int, int] | None:
    """Returns pages in memory, and in total."""
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        if not (os.geteuid() == 0 or status.st_uid == os.geteuid() or os.access(path, os.W_OK)):
            # The kernel reports all pages of another user's file as resident.
            return None
        resident = 0
        for start in range(0, status.st_size, _WINDOW_BYTES):
            counted = _count(file.fileno(), start, min(_WINDOW_BYTES, status.st_size - start))
            if counted is None:
                return None
            resident += counted
        return resident, -(-status.st_size // mmap.PAGESIZE)


def _count(file: int, start: int, length: int) -> int | None:
    """Returns the pages of a part of a file that are in memory. Mapping does not read them."""
    try:
        window = mmap.mmap(file, length, access=mmap.ACCESS_COPY, offset=start)
    except (OSError, ValueError):
        return None
    with window:
        residency = (ctypes.c_ubyte * -(-length // mmap.PAGESIZE))()
        first = ctypes.c_char.from_buffer(window)
        try:
            if _LIBC.mincore(ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(length), residency):
                return None
        finally:
            del first
        return len(bytes(residency).translate(None, _NOT_RESIDENT))
