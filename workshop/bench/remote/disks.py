"""The disks that images are made on, sent from and received on: a slow one, a model in real time, and this machine's."""

from __future__ import annotations

import os
import shutil

from bench.images.filesystem import ext4_on
from bench.scratch import Scratch
from cheetah.bench.storage.targets import disk_model
from lab import disk

SLOW, FAST = "a disk of 24 MB/s", "this machine's disk"
DISKS = (SLOW, FAST)
# The thesis's IDE disk: the rate of an external disk of 2010, too.
MODEL = "ide"
# A file system's own share of a disk.
OVERHEAD = 1.1
OVERHEAD_BYTES = 64 << 20


def directory(scratch: Scratch, name: str, content_bytes: int) -> str:
    """Returns a directory on one of the disks, until `scratch` is left. The slow disk is in memory, and has room for this much
    content."""
    if name == FAST:
        return scratch.disk_dir
    if disk_model.program() is None:
        os.environ[disk_model.PROGRAM] = disk.build()
    file = disk_model.serve(scratch, MODEL, int(content_bytes * OVERHEAD) + OVERHEAD_BYTES)
    return ext4_on(scratch, str(file))


def has_room(scratch: Scratch, name: str, content_bytes: int) -> bool:
    """Whether this machine's disk has room for as much content; the slow disk is made to have it."""
    return name != FAST or shutil.disk_usage(scratch.disk_dir).free >= content_bytes * OVERHEAD
