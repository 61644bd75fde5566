"""The volumes of Windows, each with the folder or drive letter that it is mounted on."""

import ctypes
import os
import stat
from pathlib import Path

from cheetah.bench.system.mount import Mount
from cheetah.bench.system.windows.kernel32 import DWORD, KERNEL, failure

__all__ = [
    "NO_DRIVES", "Mount", "aliases", "at", "below", "device", "disk_of", "is_block", "is_elsewhere", "loops", "name_of", "of", "table",
]  # fmt: skip

NO_DRIVES = (
    "bench on Windows measures folders only: drives, file systems and models of disks are made and mounted on Linux"
)
"""Why no drive can be created for a run here."""
NETWORK, MEMORY = 4, 6
"""DRIVE_REMOTE and DRIVE_RAMDISK."""
READ_ONLY = 0x00080000
"""FILE_READ_ONLY_VOLUME."""
PATH_CHARS_MAX = 1 << 15


def table() -> list[Mount]:
    """Returns nothing: mounts are looked up by path."""
    return []


def of(path: Path) -> Mount | None:
    """Returns the volume that holds a path; None if Windows does not tell. Raises OSError if there is no such path."""
    path.stat()
    point = ctypes.create_unicode_buffer(PATH_CHARS_MAX)
    if not KERNEL.GetVolumePathNameW(os.path.abspath(path), point, PATH_CHARS_MAX):
        raise failure(str(path))
    flags = DWORD()
    fs = ctypes.create_unicode_buffer(64)
    if not KERNEL.GetVolumeInformationW(point.value, None, 0, None, None, ctypes.byref(flags), fs, 64):
        return None
    kind = KERNEL.GetDriveTypeW(point.value)
    options = ",".join(["ro" if flags.value & READ_ONLY else "rw", *["network"] * (kind == NETWORK)])
    # What a drive in memory holds is nowhere else, as on Linux's tmpfs.
    name = "ramfs" if kind == MEMORY else fs.value
    return Mount(0, point.value, Path("/"), Path(point.value), options, name, point.value)


def aliases(_path: Path, _mount: Mount) -> list[tuple[Path, Mount]]:
    """Returns nothing: other folders that a volume is mounted on are not looked for."""
    return []


def at(_point: Path) -> bool:
    """Returns False: nothing is mounted by a run."""
    return False


def below(_path: Path) -> list[Path]:
    """Returns nothing: nothing is mounted by a run."""
    return []


def device(mount: Mount) -> str | None:
    """Returns the name of a volume of this machine; None for one of another."""
    return None if "network" in mount.options.split(",") else mount.device


def disk_of(path: Path) -> str | None:
    """Returns the name of the volume that a directory is on. Which disk that is on takes an administrator's rights."""
    mount = of(path)
    return device(mount) if mount else None


def is_block(_number: str) -> bool:
    """Returns False: there are no device numbers."""
    return False


def name_of(number: str) -> str:
    """Returns the name of a volume, with what is not measured of it."""
    return f"{number} (what it moves is not counted)"


def loops() -> dict[str, str]:
    """Returns nothing: there are no loop devices."""
    return {}


def is_elsewhere(entry: "os.DirEntry[str]", _device: int) -> bool:
    """Returns whether a directory is a junction, or another volume mounted there."""
    return entry.stat(follow_symlinks=False).st_reparse_tag == stat.IO_REPARSE_TAG_MOUNT_POINT
