"""The model of a disk as a target: the lab's program serves a file that takes the disk's time. Needs root and FUSE."""

import contextlib
import dataclasses
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from cheetah.bench.failure import BenchError
from cheetah.bench.process import run
from cheetah.bench.storage.targets import filesystem, memory
from cheetah.bench.storage.targets.directory import free
from cheetah.bench.storage.targets.target import Missing, ReadyTarget
from cheetah.bench.storage.targets.work import WorkDirectory, parent
from cheetah.bench.verbs import ResourceOwner

PROGRAM = "LAB_DISK"
"""The variable that names the program, if it is not on the PATH."""
NAME = "lab-disk"


@dataclasses.dataclass(frozen=True)
class DiskModelTarget:
    """The beginning of a disk, its outer edge, with a file system."""

    name: str
    model: str
    fs: str
    out: Path
    file_bytes: int
    """The largest file that will be written."""
    readahead_bytes: int | None = None

    @contextlib.contextmanager
    def enter(self, need_bytes: int) -> Iterator[ReadyTarget]:
        """Starts the model, and makes a file system on it; afterwards all is removed."""
        filesystem.check(self.fs, self.file_bytes)
        require_programs()
        size = filesystem.size_for(self.fs, need_bytes)
        memory.require(size, "models of disks")
        with WorkDirectory(parent(), self.out) as work:
            try:
                file = serve(work, self.model, size)
                disk = filesystem.on(work, file, self.fs, self.readahead_bytes)
                files = disk.directory / "files"
                files.mkdir(mode=0o700)
                facts = {"disk": f"a model: {described(self.model)}", **disk.about, "free": free(disk.directory)}
            except OSError as error:
                raise BenchError(f"{self.name}: {error}") from error
            yield ReadyTarget(files, disk.device, (file,), about=facts)


def program() -> str | None:
    """Returns the program; None if it is not there."""
    return os.environ.get(PROGRAM) or shutil.which(NAME)


def require_programs(more: Sequence[str] = ()) -> None:
    """Raises Missing without the program, or one of `more`; BenchError without FUSE."""
    if program() is None:
        raise Missing(
            f"models of disks need {NAME} of the sources (cargo build in workshop/lab/disk): name it in ${PROGRAM}"
        )
    for name in more:
        if shutil.which(name) is None:
            raise Missing(f"an array of models of disks needs {name}, which is not installed")
    if not os.path.exists("/dev/fuse"):
        raise BenchError("/dev/fuse is missing, and models of disks are mounted with it: run `modprobe fuse`")


def described(model: str) -> str:
    """Returns the drive that a model stands for."""
    lines = run([program() or NAME, "list"]).splitlines()
    return next((line.partition(": ")[2] for line in lines if line.startswith(f"{model}: ")), model)


def serve(holder: ResourceOwner, model: str, size_bytes: int, store: str = "") -> Path:
    """Starts a model, its bytes in memory, or in the file `store`, until `holder` is left; returns its file."""
    directory = Path(holder.make_dir("disk"))
    # The file is named after the work directory, so the kernel's name for the loop device's file shows the owner.
    name = f"{directory.parent.name}-{directory.name}.raw"
    # Its own process unmounts it when stopped; if that was killed, this does.
    holder.at_exit(filesystem.unmount_below, directory)
    argv = [program() or NAME, model, str(directory), "--size", str(size_bytes), "--name", name]
    argv += ["--store", store] if store else []
    process = holder.start(f"the model {model}", argv)
    process.wait_until(lambda: "ready" in process.printed(), "its ready message")
    return directory / name


def exported(holder: ResourceOwner, file: Path) -> str:
    """Serves a model's file over NBD until `holder` is left; returns the URI."""
    # The path of a socket has at most 107 bytes, and that of the target may be longer.
    directory = tempfile.mkdtemp(prefix="cheetah-disk-")
    holder.at_exit(shutil.rmtree, directory)
    socket = os.path.join(directory, "socket")
    process = holder.start("nbdkit file", ["nbdkit", "--foreground", "--unix", socket, "file", str(file)])
    process.wait_until(lambda: os.path.exists(socket), "its socket")
    return f"nbd+unix:///?socket={socket}"
