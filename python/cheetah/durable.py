"""Files that are there whole, or not at all."""

import os
import pathlib


def replace(path: pathlib.Path, content: bytes) -> None:
    """Writes a small file whole, durably; one that is there is replaced. OSError where a link was put in its way: the
    folder may be one that others can write to, and whoever runs this may write anywhere."""
    partial = path.with_name(path.name + ".partial")
    with open(partial, "wb", opener=no_link) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def no_link(path: str, flags: int) -> int:
    """For `open`: OSError where the path is a link."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)
