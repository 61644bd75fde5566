"""The file systems in an image, as The Sleuth Kit finds them."""

import dataclasses
import functools
import re
import subprocess
from pathlib import Path

from cheetah.bench.storage.steps.step import Skipped

TOOLS = ("mmls", "fsstat")
SECTOR_BYTES = 512
"""The unit of The Sleuth Kit's `-o` by default."""
LOOK_LIMIT_S = 300
PARTITIONS_MAX = 32
"""No disk has more; each is a run of a tool, and a table can be crafted without end."""
_UNITS = re.compile(r"Units are in (\d+)-byte sectors")
# Slot, start, end, length; a partition's slot is a number, unallocated space has dashes or "Meta".
_PARTITION = re.compile(r"^\d+:\s+[\d:]+\s+(\d+)\s+\d+\s+\d+\s", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class FileSystem:
    """A file system."""

    start: int
    """In sectors of `SECTOR_BYTES`."""
    fs: str
    """The Sleuth Kit's name for it: "ext4", "ntfs"."""

    @property
    def at(self) -> tuple[str, ...]:
        """Returns the options that select it."""
        return ("-o", str(self.start)) if self.start else ()


def volumes(image: Path) -> tuple[FileSystem, ...]:
    """Returns the file system of every partition; that of the whole image if no partition has one. Raises Skipped if
    there is none.

    The image is examined once, so the original can stand for a measured copy.
    """
    state = image.stat()
    found = _volumes(image, state.st_size, state.st_mtime_ns)
    if not found:
        raise Skipped("The Sleuth Kit recognises no file system in the image")
    return found


@functools.lru_cache(maxsize=8)
def _volumes(image: Path, _size: int, _mtime_ns: int) -> tuple[FileSystem, ...]:
    found = tuple(volume for start in _partitions(image) if (volume := _volume(image, start)))
    return found or tuple(volume for volume in (_volume(image, 0),) if volume)


def _partitions(image: Path) -> list[int]:
    table = _output_of("mmls", str(image))
    units = _UNITS.search(table)
    scale = int(units.group(1)) // SECTOR_BYTES if units else 1
    starts = list(dict.fromkeys(int(start) * scale for start in _PARTITION.findall(table)))
    if len(starts) > PARTITIONS_MAX:
        raise Skipped(f"the image has {len(starts)} partitions, and no more than {PARTITIONS_MAX} are measured")
    return starts


def _volume(image: Path, start: int) -> FileSystem | None:
    fs = _output_of("fsstat", "-t", "-o", str(start), str(image)).strip()
    return FileSystem(start, fs) if fs else None


def _output_of(*argv: str) -> str:
    """Returns a tool's output; nothing if it fails, which means that it recognises nothing."""
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=LOOK_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise Skipped(f"{argv[0]} did not end within {LOOK_LIMIT_S} s of looking at the image") from None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""
