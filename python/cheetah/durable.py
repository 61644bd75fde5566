"""Files that are written whole or not at all."""

import contextlib
import os
import pathlib
import stat
import sys
from collections.abc import Iterator

from cheetah.error import Error

MISUSED = 2
# Windows has no such flag; a new file has the rights of its folder there.
if sys.platform == "win32":
    NO_LINK = 0
else:
    NO_LINK = os.O_NOFOLLOW


def replace(path: pathlib.Path, content: bytes) -> None:
    """Writes a small file durably, replacing an existing one. Raises OSError if the temporary name is a link: another
    user may write to the directory, and this process may be root."""
    with written(path) as partial, open(partial, "xb", opener=for_owner) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def written(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields the temporary name of a file that gets its name at the end. If that fails, nothing is left: a full disk
    leaves no half-made file.

    What an earlier run left under the temporary name is removed, and not written to, since it may be a hard link to
    another file. Raises `cheetah.Error` if it is no regular file."""
    partial = path.with_name(path.name + ".partial")
    refuse_foreign(partial)
    partial.unlink(missing_ok=True)
    try:
        yield partial
        partial.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def store(folder: pathlib.Path) -> None:
    """Has all files in a folder stored, so that they are whole after a power cut. Links are not followed."""
    for directory, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(directory, name)
            if not os.path.islink(path):
                _store(path)
        _store(directory)


def store_names(folder: pathlib.Path) -> None:
    """Has the names in a folder stored, after a file or folder in it was renamed."""
    _store(folder)


# Windows cannot open a folder, and has nothing to store its names with. What calls this is used on Linux only.
def _store(path: str | pathlib.Path) -> None:
    opened = os.open(path, os.O_RDONLY | NO_LINK)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def refuse_foreign(path: pathlib.Path, links_max: int | None = None) -> None:
    """Raises `cheetah.Error` if there is something else at a path than a regular file, or one with more names than
    `links_max`."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if stat.S_ISLNK(found.st_mode):
        what = "is a symbolic link"
    elif not stat.S_ISREG(found.st_mode):
        what = "is not a regular file"
    elif links_max is not None and found.st_nlink > links_max:
        what = "is another file's name too (a hard link)"
    else:
        return
    raise Error(f"{path} {what}, and is left as it is; move it away, or name another folder", MISUSED)


def refuse_other_content(path: pathlib.Path, begins: bytes) -> None:
    """Raises `cheetah.Error` if there is something else at a path than a regular file with this name only, which is empty or
    begins with `begins`, or with a part of it that a crash left."""
    refuse_foreign(path, links_max=1)
    try:
        with open(path, "rb", opener=for_owner) as file:
            found = file.read(len(begins))
    except FileNotFoundError:
        return
    # After a power cut, what was not stored yet may be zeros.
    if found.strip(b"\0") and not begins.startswith(found):
        what = "is not a file of this program, and is left as it is; move it away, or name another folder"
        raise Error(f"{path} {what}", MISUSED)


def for_owner(path: str, flags: int) -> int:
    """An opener for `open`: a new file is its owner's alone, and a link is not followed."""
    return os.open(path, flags | NO_LINK, 0o600)
