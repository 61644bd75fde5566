"""The pages of files in memory: dropped, counted, and stored."""

import ctypes
import mmap
import os
from pathlib import Path

from cheetah.bench.system.linux import mounts
from cheetah.bench.units import MIB

SYNC = ("sync", "-f", ".")
"""Flushes the file system that it is started in."""
SYNC_EACH = ("find", ".", "-xdev", "-type", "f", "-newer", "{since}", "-exec", "sync", "--", "{}", "+")
"""Flushes each file changed after `since`. FUSE does not pass `syncfs` on to the server of, say, sshfs; it passes `fsync`."""
TIMES_S = 2
"""How much older than now `since` is made: a server may round times to seconds."""
_DROP = "/proc/sys/vm/drop_caches"
_WINDOW_BYTES = 256 * MIB
"""The part of a file examined at once."""
_NOT_RESIDENT = bytes(range(0, 256, 2))
"""In `mincore`'s result for a page only the lowest bit has a meaning."""
_LIBC = ctypes.CDLL(None, use_errno=True)
NOT_ALL_DROPPED = (
    "without root, cold means that the files a step reads were dropped from memory; directories and the file "
    "systems' own metadata may still be cached"
)
FLUSHERS = (SYNC[0], SYNC_EACH[0])
"""The programs that flush."""


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


def allocate(file: int, size_bytes: int) -> None:
    """Gives a new file its space. Raises OSError if there is too little."""
    os.posix_fallocate(file, 0, size_bytes)


def drops_all() -> bool:
    """Returns whether `make_cold` may drop all caches, including those of directories and file systems."""
    try:
        with open(_DROP, "w", encoding="ascii"):
            return True
    except OSError:
        # Not root, or in a container.
        return False


def drop_all() -> None:
    """Drops all caches."""
    Path(_DROP).write_text("3", encoding="ascii")


def forget(path: Path) -> None:
    """Drops a file from memory, as far as the kernel agrees."""
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def resident(path: Path) -> tuple[int, int] | None:
    """Returns the pages of a file in memory, and in total; None if the kernel does not tell."""
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        if not (os.geteuid() == 0 or status.st_uid == os.geteuid() or os.access(path, os.W_OK)):
            # The kernel reports all pages of another user's file as resident.
            return None
        present = 0
        for start in range(0, status.st_size, _WINDOW_BYTES):
            counted = _count(file.fileno(), start, min(_WINDOW_BYTES, status.st_size - start))
            if counted is None:
                return None
            present += counted
        return present, -(-status.st_size // mmap.PAGESIZE)


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
