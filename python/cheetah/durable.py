"""Files that are there whole, or not at all."""

import os
import pathlib


def replace(path: pathlib.Path, content: bytes) -> None:
    """Writes a small file whole, durably; one that is there is replaced."""
    partial = path.with_name(path.name + ".partial")
    with open(partial, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
