"""The counters of Windows: those of its processors. What a disk or a network card moves is not counted."""

import ctypes
import os

from cheetah.bench.system.windows.kernel32 import KERNEL

TICKS_PER_S = 10_000_000


def links() -> dict[str, float]:
    """Returns nothing: network cards are not looked for."""
    return {}


def device(_number: str | None) -> tuple[int, int, float] | None:
    """Returns None: what a disk moves is not counted."""
    return None


def processors() -> tuple[int, int | None, int]:
    """Returns ticks busy and total, over all processors; Windows does not know what a host took."""
    idle, kernel, user = (ctypes.c_uint64() for _ in range(3))
    KERNEL.GetSystemTimes(*(ctypes.byref(one) for one in (idle, kernel, user)))
    # The time of the kernel includes the idle time.
    total = kernel.value + user.value
    return total - idle.value, None, total


def stalled_s(_what: str) -> float | None:
    """Returns None: Windows does not count it."""
    return None


def network() -> dict[str, tuple[int, int]]:
    """Returns nothing: network cards are not looked for."""
    return {}


def usable_processors() -> int:
    """Returns the number of processors."""
    return os.cpu_count() or 1


def own_bytes() -> int:
    """Returns 0: not counted by thread."""
    return 0
