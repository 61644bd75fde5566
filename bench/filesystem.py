"""A file system on a drive: ext4 on a loop device over a file in a mount."""

import os

from cheetah.bench.failure import BenchError
from cheetah.bench.process import run


def _quietly(argv):
    try:
        run(argv)
    except BenchError as error:
        print(f"    {error}")


def attach_loop(scratch, path):
    """A loop device over the file, unbuffered where that works: buffered, every byte would be cached twice."""
    try:
        device = run(["losetup", "--find", "--show", "--direct-io=on", path]).strip()
    except BenchError:
        device = run(["losetup", "--find", "--show", path]).strip()
    scratch.at_exit(_quietly, ["losetup", "--detach", device])
    return device


def ext4_on(scratch, path):
    """Makes ext4 in the file and mounts it; returns the directory. Unmounted when `scratch` is left."""
    device = attach_loop(scratch, path)
    # Nothing is left to be initialised in the background, where it would disturb what is measured.
    run(["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", device])
    directory = scratch.make_dir("ext4")
    run(["mount", "-o", "noatime", device, directory])
    scratch.at_exit(_quietly, ["umount", directory])
    return directory


def image_of(scratch, tree, size_bytes, name="image.raw"):
    """An image file on disk with one ext4 file system that holds the tree."""
    path = os.path.join(scratch.disk_dir, name)
    with open(path, "wb") as file:
        file.truncate(size_bytes)
    run(["mkfs.ext4", "-q", "-F", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0", "-d", tree, path])
    return path
