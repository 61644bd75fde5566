"""A drive target, created for the run: mounted, with a file system on it. Needs root and FUSE."""

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from cheetah.bench import verbs
from cheetah.bench.failure import BenchError
from cheetah.bench.interrupts import uninterrupted
from cheetah.bench.storage.settings import DrivePlan
from cheetah.bench.storage.targets import disk_model, filesystem, memory
from cheetah.bench.storage.targets.directory import free
from cheetah.bench.storage.targets.target import Missing, ReadyTarget
from cheetah.bench.storage.targets.work import WorkDirectory, parent
from cheetah.bench.units import MIB, iec


@dataclasses.dataclass(frozen=True)
class DriveTarget:
    """A drive to be created, over nodes, given servers, or models of disks."""

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
        self._check_memory(size)
        with WorkDirectory(parent(), self.out) as work:
            try:
                ready = self._made(work, size)
            except OSError as error:
                raise BenchError(f"{self.name}: {error}") from error
            yield ready

    def _made(self, work: WorkDirectory, size_bytes: int) -> ReadyTarget:
        started, nodes = self._nodes(work, size_bytes)
        # The mounted file is named after the work directory, so the kernel's name for the loop device's file shows the
        # owner.
        drive = work.directory / f"{work.directory.name}.drive"
        work.at_exit(_destroy, drive)
        # A seal has its own measurement (workshop/bench/run seal); it would also need a key.
        argv = ["create", str(drive), "--nodes", ",".join(nodes), "--layout", self.plan.layout, "--no-seal"]
        argv += ["--unit", iec(self.plan.unit_bytes)] if self.plan.has_unit else []
        with uninterrupted():
            made = verbs.call([*argv, "--size", iec(size_bytes)])
        for node in started:
            node.wait_for_memory()
        # Its own process unmounts it when stopped; if that was killed, this does.
        work.at_exit(filesystem.unmount_below, work.directory)
        _, mounted = verbs.mount(work, str(drive), writable=True)
        disk = filesystem.on(work, Path(mounted), self.fs, self.readahead_bytes)
        files = disk.directory / "files"
        files.mkdir(mode=0o700)
        facts = {
            "drive": str(made.get("layout", self.plan.layout)),
            "unit": iec(self.plan.unit_bytes) if self.plan.has_unit else "none",
            "nodes": ", ".join(nodes) + (" (started for this)" if self.plan.local else ""),
            "size": iec(size_bytes),
            "kept by its mount": "read-ahead that was not yet requested, 64MiB at most",
        }
        if self.plan.disk_model:
            facts["disks"] = f"{self.plan.width} models: {disk_model.described(self.plan.disk_model)}"
        return ReadyTarget(
            files, disk.device, (Path(mounted),), about={**facts, **disk.about, "free": free(disk.directory)}
        )

    def _nodes(self, work: WorkDirectory, size_bytes: int) -> tuple[list[verbs.Node], list[str]]:
        """Starts what the run needs, each with room for its share; returns the nodes among it, and the names of all."""
        each = share(size_bytes, self.plan)
        if self.plan.disk_model:
            served = [disk_model.serve(work, self.plan.disk_model, each) for _ in range(self.plan.local)]
            return [], [disk_model.exported(work, file) for file in served]
        started = [verbs.node(work, each) for _ in range(self.plan.local)]
        return started, [node.nbd for node in started] or list(self.plan.nodes)

    def _check_memory(self, size_bytes: int) -> None:
        """Checks memory before anything is started."""
        if not self.plan.local:
            return
        each = share(size_bytes, self.plan)
        if self.plan.disk_model:
            disk_model.require_programs(("nbdkit",))
            memory.require(self.plan.local * each, f"{self.plan.local} models of disks")
        else:
            memory.require(self.plan.local * verbs.lent(each), f"{self.plan.local} nodes on this machine")


def share(size_bytes: int, plan: DrivePlan) -> int:
    """Returns the bytes that each node must hold, including rounding to the largest unit, and what redundancy keeps
    beside the content."""
    redundant_bytes = 32 * MIB if plan.data_width < plan.width else 0
    return -(-size_bytes // plan.data_width) + 4 * MIB + redundant_bytes


def _destroy(drive: Path) -> None:
    """Returns the memory to the nodes, even if the mount's process did not end normally."""
    if drive.exists():
        verbs.call(["destroy", str(drive), "--force"])
