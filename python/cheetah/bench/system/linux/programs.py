"""The programs of an examiner."""

import errno
import mmap
import os
import shutil
from pathlib import Path

COPY = "cp"
"""What copies a file."""
ROOTS = ("/usr/bin", "/usr/lib", "/usr/share")
"""Where this machine's programs are."""
MAKES_FILE_SYSTEM = True
"""Whether an image with a file system can be made."""
MISSING: dict[str, str] = {}
"""By program: why it is not used here, even if one of this name is installed."""
REMARKS: tuple[str, ...] = ()
"""What the results of every run say about its tools."""
DIRECT_RECORD_BYTES = 4096


def found(tool: str) -> str | None:
    """Returns the path of a program; None if it is not installed."""
    return shutil.which(tool)


def digester(tool: str) -> str:
    """Returns the program that does the work of md5sum or sha256sum."""
    return tool


def copy(source: Path, copied: Path) -> tuple[str, ...]:
    """Returns the command that copies a file, holes included."""
    return (COPY, "--sparse=never", "--reflink=never", "--", str(source), str(copied))


def digest(tool: str, path: Path) -> tuple[str, ...]:
    """Returns the command that prints the digest of a file."""
    return (tool, "--", str(path))


def fio_options(file: Path) -> tuple[str, ...]:
    """Returns the options of fio that name the file, and how one request at a time is made."""
    return (f"--filename={file}", "--ioengine=psync")


def free_bytes(directory: Path) -> int:
    """Returns the free space that this user can fill: only root can use the blocks reserved for it."""
    space = os.statvfs(directory)
    blocks = space.f_bfree if os.geteuid() == 0 else space.f_bavail
    return blocks * space.f_frsize


def takes_direct(directory: Path) -> bool:
    """Returns whether files there support direct I/O. Raises OSError if they cannot be written at all."""
    path = directory / ".direct"
    page = mmap.mmap(-1, DIRECT_RECORD_BYTES)
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
        try:
            return os.pwrite(file, page, 0) == os.preadv(file, [page], 0) == DIRECT_RECORD_BYTES
        finally:
            os.close(file)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise
        return False
    finally:
        path.unlink(missing_ok=True)
        page.close()
