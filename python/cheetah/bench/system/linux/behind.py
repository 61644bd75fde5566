"""What a file system is on: the drive, image or disk image behind it, through partitions, arrays, loop devices and FUSE."""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from cheetah.bench.system.linux import mounts

BLOCK = Path("/sys/class/block")
DEPTH_MAX = 16
"""The maximum depth of loop devices on file systems on loop devices."""


def behind(mount: mounts.Mount, depth: int = 0) -> list[Path]:
    """Returns the files that a mount is on, at any depth: a loop device's, a drive's, an image's."""
    if depth > DEPTH_MAX:
        return []
    files: list[Path] = []
    number = mount.device if mounts.is_block(mount.device) else mounts.device(mount)
    if number is not None:
        files += _of_device(mounts.name_of(number))
    elif mount.fs.partition(".")[0] == "fuse":
        files += _named_with(str(mount.point))
    for file in list(files):
        with contextlib.suppress(OSError):
            below = mounts.of(file)
            if below and below != mount:
                files += [one for one in behind(below, depth + 1) if one not in files]
    return files


def _of_device(name: str) -> list[Path]:
    """Returns the files that a block device is on."""
    place = BLOCK / name
    if (place / "partition").exists():
        return _of_device(place.resolve().parent.name)
    files = [Path(file) for loop, file in mounts.loops().items() if loop == name]
    for slave in _entries(place / "slaves"):
        files += _of_device(slave.name)
    served = re.fullmatch(r"(ublk)b(\d+)|(nbd)\d+", name)
    if served and served[1]:
        files += [file for pid in _holding(f"/dev/ublkc{served[2]}") for file in _argued(pid)]
    elif served:
        with contextlib.suppress(OSError, ValueError):
            files += _argued(int((place / "pid").read_text(encoding="ascii")))
    return files


def _entries(directory: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return sorted(directory.iterdir())
    return []


def _processes() -> Iterator[int]:
    yield from (int(name) for name in os.listdir("/proc") if name.isdigit())


def _holding(device: str) -> Iterator[int]:
    """Yields processes that have a file open."""
    for pid in _processes():
        for link in _entries(Path(f"/proc/{pid}/fd")):
            with contextlib.suppress(OSError):
                if os.readlink(link) == device:
                    yield pid
                    break


def _named_with(point: str) -> list[Path]:
    """Returns the files in the command lines of processes started with a mount point: FUSE presents them."""
    return [file for pid in _processes() for file in _argued(pid, point)]


def _argued(pid: int, point: str = "") -> list[Path]:
    """Returns the files in a process's command line; none if `point` was given and is not in it."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
        where = os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return []
    given = [os.path.normpath(os.path.join(where, os.fsdecode(word))) for word in arguments.split(b"\0")[1:] if word]
    if point and point not in given and point not in map(os.path.realpath, given):
        return []
    return [Path(one) for one in given if one != point and os.path.isfile(one)]
