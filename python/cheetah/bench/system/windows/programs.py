"""The programs of an examiner, and Python where Windows has none that does their work."""

import os
import shutil
import sys
from pathlib import Path

from cheetah.bench.system.windows.kernel32 import INVALID_HANDLE, KERNEL

COPY = "Python"
"""What copies a file: the program below."""
ROOTS = tuple(os.path.join(os.environ.get("SystemRoot", r"C:\Windows"), name) for name in ("System32", "SysWOW64"))
"""Where this machine's programs are."""
MAKES_FILE_SYSTEM = False
"""Whether an image with a file system can be made."""
MISSING = {"strings": "Windows has no strings of GNU, and other programs of this name have other options"}
"""By program: why it is not used here, even if one of this name is installed."""
REMARKS = (
    "Python copies and hashes, since Windows has no cp, md5sum and sha256sum; its start is not measured",
    "what disks and network cards move, and waiting for them, is not counted on Windows: no bottleneck is found but a processor",
)
"""What the results of every run say about its tools."""
# Windows looks for programs in the current folder first, and that may be evidence with a program planted in it. Python obeys this from 3.12 on.
os.environ["NoDefaultCurrentDirectoryInExePath"] = "1"
_WORKER = str(Path(__file__).with_name("worker.py"))
_WRITE, _NEW, _UNBUFFERED, _FLEETING = 0x40000000, 2, 0x20000000, 0x04000000
"""GENERIC_WRITE, CREATE_ALWAYS, FILE_FLAG_NO_BUFFERING, FILE_FLAG_DELETE_ON_CLOSE."""


def found(tool: str) -> str | None:
    """Returns the path of a program; None if it is not installed."""
    if tool in MISSING:
        return None
    if tool == COPY:
        # In a virtual environment, `sys.executable` only starts the interpreter, whose work would not be measured.
        return getattr(sys, "_base_executable", None) or sys.executable
    path = shutil.which(tool)
    return None if path and not os.path.dirname(tool) and _is_only_here(path) else path


def _is_only_here(path: str) -> bool:
    """Returns whether a program is in the current folder, and that is not on the path: Python 3.11 looks there nevertheless."""
    here = os.path.realpath(os.curdir)
    on_path = {os.path.realpath(one) for one in os.environ.get("PATH", "").split(os.pathsep) if one}
    return os.path.realpath(os.path.dirname(path)) == here and here not in on_path


def own(*words: str) -> tuple[str, ...]:
    """Returns the command of a task that `worker` does."""
    return (COPY, "-I", "-S", _WORKER, *words)


def is_own(argv: tuple[str, ...]) -> bool:
    """Returns whether a command is such a task."""
    return argv[: len(own())] == own()


def digester(_tool: str) -> str:
    """Returns the program that does the work of md5sum or sha256sum."""
    return COPY


def copy(source: Path, copied: Path) -> tuple[str, ...]:
    """Returns the command that copies a file, holes included."""
    return own("copy", str(source), str(copied))


def digest(tool: str, path: Path) -> tuple[str, ...]:
    """Returns the command that prints the digest of a file."""
    return own("digest", tool.removesuffix("sum"), str(path))


def fio_options(file: Path) -> tuple[str, ...]:
    """Returns the options of fio that name the file, and how one request at a time is made. A drive letter's colon would divide names, and
    tools are started in the folder of the file; of fio's engines only this one bypasses the cache of Windows."""
    return (f"--filename={file.name}", "--ioengine=windowsaio", "--iodepth=1")


def free_bytes(directory: Path) -> int:
    """Returns the free space that this user can fill."""
    return shutil.disk_usage(directory).free


def takes_direct(directory: Path) -> bool:
    """Returns whether files there can be opened without buffering. Raises OSError if they cannot be written at all."""
    path = directory / ".direct"
    path.touch()
    handle = KERNEL.CreateFileW(str(path), _WRITE, 0, None, _NEW, _UNBUFFERED | _FLEETING, None)
    if handle == INVALID_HANDLE:
        path.unlink(missing_ok=True)
        return False
    KERNEL.CloseHandle(handle)
    return True
