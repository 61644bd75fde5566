"""The page cache's share of files: dropped, filled, and measured."""

import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from cheetah.bench.system import pages, tool
from cheetah.bench.units import MIB

SYNC_LIMIT_S = 1800.0


def sync(directory: Path, limit_s: float = SYNC_LIMIT_S) -> None:
    """Waits until the file system of `directory` has been flushed to its device.

    It runs in its own process, since a device that does not answer would block this one for ever. Where only single files can be
    flushed, they are as they are dropped. Raises tool.TimedOut at the limit, OSError if the device reports an error.
    """
    if not pages.SYNC:
        return
    with tool.Tool(pages.SYNC, directory) as one:
        flushed(one, limit_s)


def flushed(one: tool.Tool, limit_s: float) -> tool.ToolRun:
    """Runs a flush command, and returns its measurements."""
    ran = one.run(limit_s)
    if ran.exit_code:
        raise OSError(errno.EIO, f"the data could not be flushed to the device: {ran.last_words}")
    return ran


def make_cold(paths: Sequence[Path], *directories: Path) -> None:
    """Drops these files from memory: as root all caches, otherwise as far as the kernel agrees. Flushes their file
    systems and those of `directories` first. `resident_share` returns what remains.

    Raises OSError or tool.TimedOut.
    """
    found = list(files(paths))
    _sync_all([*directories, *(path.parent for path in found)])
    if pages.drops_all():
        pages.drop_all()
        return
    for path in found:
        pages.forget(path)


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
    total = resident = 0
    for path in files(paths):
        counted = pages.resident(path)
        if counted is None:
            return None
        resident += counted[0]
        total += counted[1]
    return resident / total if total else None


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
