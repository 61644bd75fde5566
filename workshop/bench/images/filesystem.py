"""ext4 on a drive, through a loop device over a file in a mount, and in an image."""

import os
from pathlib import Path

from bench.scratch import Scratch
from cheetah.bench.process import run
from cheetah.bench.storage.targets import filesystem


def ext4_on(scratch: Scratch, path: str) -> str:
    """Makes ext4 in the file and mounts it until `scratch` is left; returns the directory."""
    return str(filesystem.on(scratch, Path(path), "ext4").directory)


def image_of(scratch: Scratch, tree: str, size_bytes: int, name: str = "image.raw") -> str:
    """Makes an image file on disk with an ext4 file system that holds the tree."""
    path = os.path.join(scratch.disk_dir, name)
    with open(path, "wb") as file:
        file.truncate(size_bytes)
    run(["mkfs.ext4", "-q", "-F", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0", "-d", tree, path])
    return path
