"""Files that are written whole or not at all."""

import os
import pathlib


def replace(path: pathlib.Path, content: bytes) -> None:
    """Writes a small file durably, replacing an existing one. Raises OSError if the temporary name is a link: another
    user may write to the directory, and this process may be root."""
    partial = path.with_name(path.name + ".partial")
    with open(partial, "wb", opener=no_link) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def no_link(path: str, flags: int) -> int:
    """An opener for `open` that raises OSError if the path is a link."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)
