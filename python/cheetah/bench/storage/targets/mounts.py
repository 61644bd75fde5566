"""Mounts, loop devices and block devices, from /proc/self/mountinfo and /sys."""

import contextlib
import dataclasses
import os
import re
from pathlib import Path

MOUNTINFO = Path("/proc/self/mountinfo")


@dataclasses.dataclass(frozen=True)
class Mount:
    """A line of mountinfo."""

    number: int
    device: str
    """"major:minor"; 0:N without a block device."""
    root: Path
    """The directory of the file system that is mounted: not "/" for a bind mount."""
    point: Path
    options: str
    fs: str
    """Its type: "ext4", "fuse.cheetah"."""
    source: str


def table() -> list[Mount]:
    """Returns all mounts, the latest last."""
    mounts = []
    for line in MOUNTINFO.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        left, _, right = line.partition(" - ")
        number, _, device, root, point, options = left.split(" ")[:6]
        fs, source, more = (right.split(" ") + ["", ""])[:3]
        # The mount's own options, then those of the file system, each once.
        merged = ",".join(dict.fromkeys([*options.split(","), *more.split(",")]))
        mounts.append(Mount(int(number), device, Path(_plain(root)), Path(_plain(point)), merged, fs, _plain(source)))
    return mounts


def _plain(text: str) -> str:
    """Decodes mountinfo's octal escapes of white space and backslashes."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def of(path: Path) -> Mount | None:
    """Returns the mount that holds a path, despite overmounts and bind mounts. Raises OSError if there is no such
    path."""
    handle = os.open(path, os.O_PATH)
    try:
        text = Path(f"/proc/self/fdinfo/{handle}").read_text(encoding="ascii")
    finally:
        os.close(handle)
    match = re.search(r"^mnt_id:\s*(\d+)", text, re.MULTILINE)
    return next((mount for mount in table() if match and mount.number == int(match[1])), None)


def aliases(path: Path, mount: Mount) -> list[tuple[Path, Mount]]:
    """Returns the other paths to `path`, which is on `mount`, each with its mount: for a bind mount, the source
    directory."""
    if not path.is_relative_to(mount.point):
        return []
    within = mount.root / path.relative_to(mount.point)
    found = []
    for other in table():
        if other.device == mount.device and other.number != mount.number and within.is_relative_to(other.root):
            alias = other.point / within.relative_to(other.root)
            # Something else may be mounted over it.
            with contextlib.suppress(OSError):
                if os.path.samefile(alias, path):
                    found.append((alias, other))
    return found


def at(point: Path) -> bool:
    """Returns whether something is mounted exactly there, from the kernel's list, so that a dead mount is not
    touched."""
    return any(mount.point == point for mount in table())


def below(path: Path) -> list[Path]:
    """Returns mount points at or below a path, deepest first."""
    found = {mount.point for mount in table() if mount.point.is_relative_to(path)}
    return sorted(found, key=lambda point: len(point.parts), reverse=True)


def device(mount: Mount) -> str | None:
    """Returns the block device whose counters show the mount's transfers; None if there is none, or more than one."""
    if is_block(mount.device):
        return mount.device
    if mount.fs == "btrfs":
        return _of_btrfs(mount.source)
    return None


def disk_of(path: Path) -> str | None:
    """Returns the name of the whole disk that a directory is on, of which its file system may be a partition; None if
    there is none, or more than one."""
    mount = of(path)
    number = device(mount) if mount else None
    if number is None:
        return None
    place = Path(f"/sys/dev/block/{number}").resolve()
    return place.parent.name if (place / "partition").exists() else place.name


def is_block(number: str) -> bool:
    """Returns whether "major:minor" is a block device."""
    return Path(f"/sys/dev/block/{number}").exists()


def _of_btrfs(source: str) -> str | None:
    """Returns the device of a btrfs, whose own device number is virtual, if it is on a single device."""
    try:
        status = os.stat(source)
    except OSError:
        return None
    number = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    if not is_block(number):
        return None
    name = Path(f"/sys/dev/block/{number}").resolve().name
    for devices in Path("/sys/fs/btrfs").glob("*/devices"):
        names = [entry.name for entry in devices.iterdir()]
        if name in names:
            return number if len(names) == 1 else None
    return number


def name_of(number: str) -> str:
    """Returns the name of a block device in /dev."""
    return Path(f"/sys/dev/block/{number}").resolve().name


def loops() -> dict[str, str]:
    """Returns each loop device in use by name ("loop3"), with the file behind it."""
    found = {}
    for file in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            found[file.parent.parent.name] = file.read_text(encoding="utf-8", errors="surrogateescape").rstrip("\n")
        except OSError:
            # It was detached meanwhile.
            continue
    return found
