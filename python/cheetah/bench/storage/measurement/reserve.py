"""Keeps free space on a disk that others need: a carver can make a thousand times as much as an image holds, and the
disk may be the system's."""

import os
from collections.abc import Callable

from cheetah.bench.storage.targets.target import ReadyTarget
from cheetah.bench.units import GIB, MIB

SIZE_MIN_BYTES = 4 * GIB
"""A smaller file system was made to be filled."""
RESERVE_BYTES = GIB


def watch(ready: ReadyTarget) -> Callable[[], str] | None:
    """Returns a function that says that too little space is left on the target's disk, or "". None if the disk is not
    shared, or if asking may block for ever."""
    if ready.device is None or ready.pages_of:
        return None
    space = os.statvfs(ready.directory)
    if space.f_blocks * space.f_frsize < SIZE_MIN_BYTES:
        return None
    reserve = min(RESERVE_BYTES, space.f_bavail * space.f_frsize // 4)

    def look() -> str:
        now = os.statvfs(ready.directory)
        left = now.f_bavail * now.f_frsize
        if left >= reserve:
            return ""
        return f"it was ended, since it left no more than {left // MIB:,} MiB of the target's disk"

    return look
