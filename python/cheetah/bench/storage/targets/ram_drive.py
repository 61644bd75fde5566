"""A drive target, created for the run: a drive over nodes, mounted, with a file system on it. Needs root and FUSE."""

import contextlib
import dataclasses
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cheetah.bench import verbs
from cheetah.bench.failure import BenchError
from cheetah.bench.interrupts import uninterrupted
from cheetah.bench.storage.settings import DrivePlan
from cheetah.bench.storage.targets import filesystem, mounts
from cheetah.bench.storage.targets.directory import free
from cheetah.bench.storage.targets.target import Missing, ReadyTarget
from cheetah.bench.storage.targets.work import WorkDirectory
from cheetah.bench.units import GIB, MIB, iec

# Memory left for tools and caches.
KEPT_BYTES = 256 * MIB


def parent() -> Path:
    """Returns where mount points and drive files are while a drive exists."""
    # Python tries the directory with a file, which it would leave when interrupted.
    with uninterrupted():
        return Path(tempfile.gettempdir())


@dataclasses.dataclass(frozen=True)
class DriveTarget:
    """A drive to be created."""

    name: str
    plan: DrivePlan
    fs: str
    out: Path
    file_bytes: int
    """The largest file that will be written."""
    readahead_bytes: int | None = None

    @contextlib.contextmanager
    def enter(self, need_bytes: int) -> Iterator[ReadyTarget]:
        """Starts nodes, creates and mounts a drive, and makes a file system; afterwards all is removed, and its memory
        wiped."""
        filesystem.check(self.fs, self.file_bytes)
        if not os.path.exists("/dev/fuse"):
            raise BenchError("/dev/fuse is missing, and a drive is mounted with it: run `modprobe fuse`")
        if shutil.which("fusermount3") is None and os.geteuid() != 0:
            raise Missing("mounting a drive needs fusermount3, which is not installed")
        size = filesystem.size_for(self.fs, need_bytes)
        if self.plan.local:
            _check_memory(size, self.plan.local)
        with WorkDirectory(parent(), self.out) as work:
            try:
                ready = self._made(work, size)
            except OSError as error:
                raise BenchError(f"{self.name}: {error}") from error
            yield ready

    def _made(self, work: WorkDirectory, size_bytes: int) -> ReadyTarget:
        started = self._nodes(work, size_bytes)
        nodes = [node.nbd for node in started] or list(self.plan.nodes)
        # The mounted file is named after the work directory, so the kernel's name for the loop device's file shows the
        # owner.
        drive = work.directory / f"{work.directory.name}.drive"
        work.at_exit(_destroy, drive)
        argv = ["create", str(drive), "--nodes", ",".join(nodes), "--layout", self.plan.layout]
        argv += ["--unit", iec(self.plan.unit_bytes)] if self.plan.layout == "stripe" else []
        with uninterrupted():
            made = verbs.call([*argv, "--size", iec(size_bytes)])
        for node in started:
            node.wait_for_memory()
        # Its own process unmounts it when stopped; if that was killed, this does.
        work.at_exit(_unmount, work.directory)
        _, mounted = verbs.mount(work, str(drive), writable=True)
        disk = filesystem.on(work, Path(mounted), self.fs, self.readahead_bytes)
        files = disk.directory / "files"
        files.mkdir(mode=0o700)
        facts = {
            "drive": str(made.get("layout", self.plan.layout)),
            "unit": iec(self.plan.unit_bytes) if self.plan.layout == "stripe" else "none",
            "nodes": ", ".join(nodes) + (" (started for this)" if started else ""),
            "size": iec(size_bytes),
            "kept by its mount": "read-ahead that was not yet requested, 64MiB at most",
        }
        return ReadyTarget(
            files, disk.device, (Path(mounted),), about={**facts, **disk.about, "free": free(disk.directory)}
        )

    def _nodes(self, work: WorkDirectory, size_bytes: int) -> list[verbs.Node]:
        """Starts the run's nodes, each with memory for its share."""
        return [verbs.node(work, share(size_bytes, self.plan.local)) for _ in range(self.plan.local)]


def share(size_bytes: int, nodes: int) -> int:
    """Returns the bytes that each of `nodes` nodes must hold, including rounding to the largest unit."""
    return -(-size_bytes // nodes) + 4 * MIB


def _check_memory(size_bytes: int, nodes: int) -> None:
    """Checks memory before anything is started: a machine without memory kills arbitrary processes."""
    need = nodes * verbs.lent(share(size_bytes, nodes)) + KEPT_BYTES
    there = _available()
    if there < need:
        raise BenchError(
            f"{nodes} nodes on this machine need {need / GIB:.1f} GiB of memory, and {there / GIB:.1f} GiB are there:"
            " use nodes on other machines, or a smaller image"
        )


def _available() -> int:
    """Returns the memory available without swapping, in bytes."""
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    raise BenchError("/proc/meminfo does not report the available memory")


def _unmount(directory: Path) -> None:
    for point in mounts.below(directory):
        filesystem.unmount(point)


def _destroy(drive: Path) -> None:
    """Returns the memory to the nodes, even if the mount's process did not end normally."""
    if drive.exists():
        verbs.call(["destroy", str(drive), "--force"])
