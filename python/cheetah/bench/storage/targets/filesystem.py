"""File systems in files: loop devices, making, mounting, unmounting. Needs root."""

import dataclasses
import os
import shutil
import time
from pathlib import Path

from cheetah.bench.failure import BenchError
from cheetah.bench.process import run, search_path
from cheetah.bench.storage.targets import mounts
from cheetah.bench.storage.targets.target import Missing
from cheetah.bench.units import GIB, MIB, iec
from cheetah.bench.verbs import ResourceOwner

# A killed tool may hold its files a little longer.
PATIENCE_S = 20.0


@dataclasses.dataclass(frozen=True)
class FileSystemKind:
    """A file system: the commands that make and mount it, and its requirements."""

    make: tuple[str, ...]
    mount: tuple[str, ...]
    size_min: int
    """Bytes; smaller ones cannot be made."""
    own_share: float
    """The share of the device it may use for itself, besides `own_bytes`."""
    own_bytes: int
    file_bytes_max: int | None = None


_MOUNT = ("mount", "-o", "noatime", "-t")


def _ext(number: int) -> FileSystemKind:
    # No lazy initialisation, which would disturb measurements.
    options = ("-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0")
    return FileSystemKind((f"mkfs.ext{number}", *options), (*_MOUNT, f"ext{number}"), 16 * MIB, 0.04, 40 * MIB)


KINDS = {
    "ext4": _ext(4),
    "ext3": _ext(3),
    "ext2": _ext(2),
    "xfs": FileSystemKind(("mkfs.xfs", "-q", "-f"), (*_MOUNT, "xfs"), 300 * MIB, 0.02, 100 * MIB),
    "btrfs": FileSystemKind(("mkfs.btrfs", "-q", "-f"), (*_MOUNT, "btrfs"), 256 * MIB, 0.1, 256 * MIB),
    "vfat": FileSystemKind(("mkfs.vfat", "-F", "32"), (*_MOUNT, "vfat"), 64 * MIB, 0.01, 8 * MIB, 4 * GIB - 1),
    "ntfs": FileSystemKind(
        ("mkntfs", "--quick", "--force", "--quiet"), ("ntfs-3g", "-o", "big_writes,noatime"), 16 * MIB, 0.02, 64 * MIB
    ),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Disk:
    """A mounted file system."""

    directory: Path
    """Its root."""
    device: str
    """Its loop device, "major:minor"."""
    about: dict[str, str]


def size_for(fs: str, need_bytes: int) -> int:
    """Returns the device size that has room for that many bytes, in whole MiB."""
    kind = KINDS[fs]
    size = max(kind.size_min, int(need_bytes * (1 + kind.own_share)) + kind.own_bytes)
    return -(-size // MIB) * MIB


def check(fs: str, file_bytes: int) -> None:
    """Raises Missing if programs are not installed; BenchError if the file system cannot hold a file of that size, or
    without root."""
    kind = KINDS[fs]
    for name in (kind.make[0], kind.mount[0]):
        if program(name) is None:
            raise Missing(f"{fs} needs {name}, which is not installed")
    if kind.mount[-1] == fs and not _known(fs):
        raise Missing(f"the kernel of this machine does not support {fs}")
    if kind.file_bytes_max is not None and file_bytes > kind.file_bytes_max:
        raise BenchError(f"{fs} cannot hold a file of 4 GiB or more, and the image has {file_bytes / GIB:.1f} GiB")
    if os.geteuid() != 0:
        raise BenchError(f"{fs} in a file needs root, for loop devices and mounting: run as root")


def program(name: str) -> str | None:
    """Returns the path of a program, searching root's directories as well; None if it is not installed."""
    return shutil.which(name, path=search_path())


def _known(fs: str) -> bool:
    """Returns whether the kernel has the file system, loading its module if needed."""

    def listed() -> bool:
        return fs in Path("/proc/filesystems").read_text(encoding="ascii").split()

    if not listed() and program("modprobe"):
        run(["modprobe", "--quiet", fs], check=False)
    return listed()


class _Loop:
    """A loop device over a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.name = ""

    def attach(self) -> None:
        """Attaches it, unbuffered if possible: buffered, every byte would be cached twice."""
        argv = ["losetup", "--find", "--show"]
        try:
            device = run([*argv, "--direct-io=on", str(self._path)])
        except BenchError:
            device = run([*argv, str(self._path)])
        self.name = Path(device.strip()).name

    def detach(self) -> None:
        """Detaches it, even if attaching was interrupted, and waits for the kernel."""
        deadline = time.monotonic() + PATIENCE_S
        while ours := [name for name, file in mounts.loops().items() if self._is_ours(name, file)]:
            for name in ours:
                run(["losetup", "--detach", f"/dev/{name}"], check=False)
            if time.monotonic() > deadline:
                raise BenchError(f"/dev/{ours[0]} is still in use: `losetup --detach /dev/{ours[0]}` when it is not")
            time.sleep(0.02)

    def _is_ours(self, name: str, file: str) -> bool:
        # The kernel reports only the name of a file in a mount that is gone.
        return file == str(self._path) or (name == self.name and Path(file).name.startswith(self._path.name))


def attach_loop(holder: ResourceOwner, path: Path) -> str:
    """Attaches a loop device to the file until `holder` is left; returns its name in /dev."""
    loop = _Loop(path)
    holder.at_exit(loop.detach)
    loop.attach()
    return loop.name


def on(holder: ResourceOwner, path: Path, fs: str, readahead_bytes: int | None = None) -> Disk:
    """Makes a file system in the file and mounts it until `holder` is left."""
    kind = KINDS[fs]
    loop = attach_loop(holder, path)
    run([*kind.make, f"/dev/{loop}"])
    if readahead_bytes is not None:
        _read_ahead(Path(f"/sys/block/{loop}/queue/read_ahead_kb"), readahead_bytes)
    directory = Path(holder.make_dir(fs))
    holder.at_exit(unmount, directory)
    run([*kind.mount, f"/dev/{loop}", str(directory)])
    # A file system in user space negotiates its read-ahead after mounting, before it answers.
    os.statvfs(directory)
    mounted = mounts.of(directory)
    device = Path(f"/sys/block/{loop}/dev").read_text(encoding="ascii").strip()
    bdi = _bdi(fs, directory, device)
    if readahead_bytes is not None and bdi is not None:
        _read_ahead(bdi, readahead_bytes)
    direct = Path(f"/sys/block/{loop}/loop/dio").read_text(encoding="ascii").strip() == "1"
    about = {
        "file system": fs,
        "mount options": mounted.options if mounted else "?",
        "loop device": "direct" if direct else "buffered: its file is cached as well",
        "read-ahead": f"{int(bdi.read_text(encoding='ascii'))} KiB" if bdi else "?",
    }
    return Disk(directory, device, about)


def _bdi(fs: str, directory: Path, device: str) -> Path | None:
    """Returns where the kernel keeps the read-ahead of this file system; some have their own place."""
    places = [Path(f"/sys/class/bdi/{device}-fuseblk"), Path(f"/sys/class/bdi/{device}")]
    if fs == "btrfs":
        name = mounts.name_of(device)
        places = [one.parent.parent / "bdi" for one in Path("/sys/fs/btrfs").glob(f"*/devices/{name}")] + places
    return next((place / "read_ahead_kb" for place in places if (place / "read_ahead_kb").exists()), None)


def _read_ahead(place: Path, readahead_bytes: int) -> None:
    try:
        place.write_text(str(readahead_bytes >> 10), encoding="ascii")
    except OSError as error:
        raise BenchError(f"read-ahead of {iec(readahead_bytes)} cannot be set: {place}: {error.strerror}") from error


def unmount_below(directory: Path) -> None:
    """Unmounts all that is mounted at or below a directory."""
    for point in mounts.below(directory):
        unmount(point)


def unmount(directory: Path) -> None:
    """Unmounts a directory, waiting a little for open files."""
    deadline = time.monotonic() + PATIENCE_S
    while mounts.at(directory):
        try:
            run(["umount", str(directory)], timeout_s=300)
        except BenchError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
