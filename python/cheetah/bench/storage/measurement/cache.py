"""What the machine's memory holds of files: dropped, filled, and above all looked at."""

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
"""By how much older than now `since` is: a server may round times to seconds."""
SYNC_LIMIT_S = 1800.0
_DROP = "/proc/sys/vm/drop_caches"
_WINDOW_BYTES = 256 * MIB
"""Of a file that is looked at at once."""
_NOT_RESIDENT = bytes(range(0, 256, 2))
"""What `mincore` tells of a page: only the lowest bit has a meaning."""
_LIBC = ctypes.CDLL(None, use_errno=True)


def flush_words(directory: Path, since: Path) -> tuple[str, ...]:
    """Returns the command that brings to the far side all that was written in `directory` since now. On FUSE it needs a
    file outside of the directory for its time: `since`."""
    mount = mounts.of(directory)
    if mount is None or mount.fs.partition(".")[0] != "fuse":
        return SYNC
    since.touch()
    now = since.stat().st_mtime
    os.utime(since, (now - TIMES_S, now - TIMES_S))
    return tuple(word.format(since=since) if word == "{since}" else word for word in SYNC_EACH)


def sync(directory: Path, limit_s: float = SYNC_LIMIT_S) -> None:
    """Waits until all of the file system that `directory` is on has reached its device.

    It is a process of its own, as a device that does not answer would never let us go on. tool.Late at the limit,
    OSError where the device complains.
    """
    with tool.Tool(SYNC, directory) as one:
        flushed(one, limit_s)


def flushed(one: tool.Tool, limit_s: float) -> tool.Ran:
    """Has a tool with such words do that, and tells what it took."""
    ran = one.run(limit_s)
    if ran.exit_code:
        raise OSError(errno.EIO, f"what was written could not be brought to the device: {ran.last_words}")
    return ran


def drops_all() -> bool:
    """Whether `make_cold` may drop all caches, those of directories and of file systems themselves included."""
    try:
        with open(_DROP, "w", encoding="ascii"):
            return True
    except OSError:
        # Not root, or in a container.
        return False


def make_cold(paths: Sequence[Path], *directories: Path) -> None:
    """Has the memory hold nothing of these files: for root of no file at all, else of them as far as the kernel agrees.
    All that was written is brought to the device before, in `directories` too. What is still there `resident_share`
    tells.

    OSError, tool.Late.
    """
    found = list(files(paths))
    _sync_all([*directories, *(path.parent for path in found)])
    if drops_all():
        Path(_DROP).write_text("3", encoding="ascii")
        return
    for path in found:
        _forget(path)


def make_warm(paths: Sequence[Path], *directories: Path) -> None:
    """Has the memory hold these files, as far as it has room. All that was written is brought to the device before, in
    `directories` too. OSError, tool.Late."""
    found = list(files(paths))
    _sync_all([*directories, *(path.parent for path in found)])
    buffer = bytearray(MIB)
    for path in found:
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def resident_share(paths: Sequence[Path]) -> float | None:
    """How much of these files is in memory, 0 to 1; None if there are none, or if the kernel does not tell us of one.

    Directories stand for the files in them."""
    pages = resident = 0
    for path in files(paths):
        counted = _resident(path)
        if counted is None:
            return None
        resident += counted[0]
        pages += counted[1]
    return resident / pages if pages else None


def files(paths: Iterable[Path]) -> Iterator[Path]:
    """The regular files among these and in these; links are not followed further than to what was named."""
    for path in paths:
        if path.is_dir():
            for parent, _, names in os.walk(path):
                found = (Path(parent, name) for name in names)
                yield from (file for file in found if file.is_file() and not file.is_symlink())
        elif path.is_file():
            yield path


def _sync_all(directories: Iterable[Path]) -> None:
    """Each file system once."""
    for directory in {os.stat(directory).st_dev: directory for directory in directories}.values():
        sync(directory)


def _forget(path: Path) -> None:
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _resident(path: Path) -> tuple[int, int] | None:
    """Pages in memory, and in all."""
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        if not (os.geteuid() == 0 or status.st_uid == os.geteuid() or os.access(path, os.W_OK)):
            # The kernel says "all" of a file that is not ours.
            return None
        resident = 0
        for start in range(0, status.st_size, _WINDOW_BYTES):
            counted = _count(file.fileno(), start, min(_WINDOW_BYTES, status.st_size - start))
            if counted is None:
                return None
            resident += counted
        return resident, -(-status.st_size // mmap.PAGESIZE)


def _count(file: int, start: int, length: int) -> int | None:
    """Pages of a piece of a file that are in memory. To map them does not read them."""
    try:
        window = mmap.mmap(file, length, access=mmap.ACCESS_COPY, offset=start)
    except (OSError, ValueError):
        return None
    with window:
        told = (ctypes.c_ubyte * -(-length // mmap.PAGESIZE))()
        first = ctypes.c_char.from_buffer(window)
        try:
            if _LIBC.mincore(ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(length), told):
                return None
        finally:
            del first
        return len(bytes(told).translate(None, _NOT_RESIDENT))
