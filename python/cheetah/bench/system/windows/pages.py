"""Files in memory: dropped one by one, and stored.

A file system flushes a file and drops what it has of it in memory when the file is opened without buffering while nobody has it open
otherwise: see `FatCommonCreate` in the file system FAT that Microsoft publishes (Windows-driver-samples, filesys/fastfat/create.c). fio
does the same.
"""

import os
from pathlib import Path

from cheetah.bench.system.windows import programs
from cheetah.bench.system.windows.kernel32 import INVALID_HANDLE, KERNEL, failure

SYNC: tuple[str, ...] = ()
"""Flushing a whole volume takes an administrator's rights: a file is flushed as it is dropped, and after the step that wrote it."""
FLUSHERS: tuple[str, ...] = ()
NOT_ALL_DROPPED = (
    "Windows does not tell what is in memory: cold means that each file a step reads was opened without buffering before, on "
    "which the file system drops it from memory; directories and the file system's own metadata may still be cached"
)
READ, SHARED, EXISTING, UNBUFFERED = 0x80000000, 7, 3, 0x20000000
"""GENERIC_READ; FILE_SHARE_READ, _WRITE and _DELETE; OPEN_EXISTING; FILE_FLAG_NO_BUFFERING."""


def flush_words(_directory: Path, since: Path) -> tuple[str, ...]:
    """Returns the command that has all files that were changed in a directory from now on stored. `since`, a file outside it, is a time
    stamp."""
    since.touch()
    return programs.own("flush", ".", str(since))


def allocate(file: int, size_bytes: int) -> None:
    """Gives a new file its space. Raises OSError if there is too little."""
    os.ftruncate(file, size_bytes)


def drops_all() -> bool:
    """Returns False: only single files can be dropped."""
    return False


def drop_all() -> None:
    """Does nothing: only single files can be dropped."""


def forget(path: Path) -> None:
    """Has the file system drop a file from memory."""
    handle = KERNEL.CreateFileW(str(path), READ, SHARED, None, EXISTING, UNBUFFERED, None)
    if handle == INVALID_HANDLE:
        raise failure(str(path))
    KERNEL.CloseHandle(handle)


def resident(_path: Path) -> tuple[int, int] | None:
    """Returns None: Windows does not tell what is in memory."""
    return None
