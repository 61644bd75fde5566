"""Paths for pyarrow, which takes only UTF-8."""

import functools
import os
import pathlib


def utf8(path: pathlib.Path) -> str:
    """Returns the path of a file, whose name is UTF-8, in UTF-8. A directory with another name is reached through a
    descriptor of this process."""
    text = str(path)
    try:
        text.encode()
    except UnicodeEncodeError:
        found = os.stat(path.parent)
        return f"/proc/self/fd/{_descriptor(str(path.parent), found.st_dev, found.st_ino)}/{path.name}"
    return text


@functools.cache
def _descriptor(folder: str, _device: int, _inode: int) -> int:
    return os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
