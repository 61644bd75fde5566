"""What a step leaves of a disk that others need too: an image can be made of which a carver makes a thousand times as
much, and the disk may be the one that the system is on."""

import os
from collections.abc import Callable

from cheetah.bench.storage.targets.target import Ready
from cheetah.bench.units import GIB, MIB

SIZE_MIN_BYTES = 4 * GIB
"""A smaller file system was made to be filled."""
RESERVE_BYTES = GIB


def watch(ready: Ready) -> Callable[[], str] | None:
    """Says, when it is asked, that too little is left on the target's disk, "" as long as there is enough. None where
    nobody else is on it, or where to ask may take for ever."""
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
        return f"it was ended, since it left no more than {left // MIB:,} MiB of the disk that the target is on"

    return look
