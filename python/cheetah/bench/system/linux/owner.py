"""Whose a folder or a process is."""

import contextlib
import os
import pwd
import stat
from pathlib import Path

from cheetah.bench.failure import BenchError
from cheetah.bench.system.linux import mounts


def require_trusted(directory: Path) -> None:
    """Raises BenchError if another user could rename files made in a directory and put links in their place, through
    which this user, perhaps root, would write and remove elsewhere."""
    for above in [directory.resolve(), *directory.resolve().parents]:
        try:
            status = above.stat()
        except OSError as error:
            raise BenchError(f"{above}: {error.strerror}") from error
        if status.st_uid not in _trusted() and not _is_private_mount(above):
            raise BenchError(
                f"{above} belongs to the user {_user(status.st_uid)}, who could replace what is written there: run this as"
                " that user, or name a directory of your own"
            )
        if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            raise BenchError(
                f"every user may replace what is written in {above}: `chmod +t {above}`, or name a directory of your own"
            )


def is_root() -> bool:
    """Returns whether this process may do everything."""
    return os.geteuid() == 0


def is_own(status: os.stat_result) -> bool:
    """Returns whether a file belongs to this user."""
    return status.st_uid == os.geteuid()


def _trusted() -> set[int]:
    """Returns the users that may own a directory: root, the current one, and the caller of sudo."""
    return {0, os.geteuid(), int(os.environ.get("SUDO_UID", "0"))}


def _is_private_mount(directory: Path) -> bool:
    """Returns whether the kernel lets no other user enter, even if a server such as sshfs reports another owner."""
    mount = mounts.of(directory)
    return mount is not None and mount.fs.partition(".")[0] == "fuse" and "allow_other" not in mount.options.split(",")


def _user(number: int) -> str:
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(number).pw_name
    return str(number)


def boot() -> str:
    """Returns the id of this machine's current boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def started(pid: int) -> str | None:
    """Returns when a process was started, in ticks since boot; with its process id that identifies it."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()[19]
