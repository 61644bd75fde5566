"""The kernel's counters."""

import contextlib
import os
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SECTOR_BYTES = 512
"""The unit of the kernel's counters, independent of the device."""


def links() -> dict[str, float]:
    """Returns the capacity of the network cards in bytes per second, if known. Virtual interfaces report made-up
    values."""
    rates = {}
    for interface in Path("/sys/class/net").iterdir():
        if not (interface / "device").exists():
            continue
        with contextlib.suppress(OSError, ValueError):
            megabits = int((interface / "speed").read_text())
            if megabits > 0:
                rates[interface.name] = megabits * 1e6 / 8
    return rates


def device(number: str | None) -> tuple[int, int, float] | None:
    """Returns bytes read and written, and busy seconds; None if the kernel does not count."""
    if number is None:
        return None
    try:
        fields = Path(f"/sys/dev/block/{number}/stat").read_text().split()
        return int(fields[2]) * SECTOR_BYTES, int(fields[6]) * SECTOR_BYTES, int(fields[9]) / 1000
    except (OSError, IndexError, ValueError):
        return None


def processors() -> tuple[int, int | None, int]:
    """Returns ticks busy, stolen and total, over all processors; None for what the kernel does not count."""
    with open("/proc/stat", encoding="ascii") as file:
        ticks = [int(field) for field in file.readline().split()[1:9]]
    idle, waiting, stolen = ticks[3], ticks[4], ticks[7]
    return sum(ticks) - idle - waiting - stolen, stolen, sum(ticks)


def stalled_s(what: str) -> float | None:
    """Returns how long at least one process has waited for "io" or "memory"; None if the kernel does not count."""
    try:
        with open(f"/proc/pressure/{what}", encoding="ascii") as file:
            return int(file.readline().rpartition("total=")[2]) / 1e6
    except (OSError, ValueError):
        return None


def network() -> dict[str, tuple[int, int]]:
    """Returns the bytes received and sent, by interface."""
    counted = {}
    with contextlib.suppress(OSError), open("/proc/net/dev", encoding="ascii") as file:
        for line in file.readlines()[2:]:
            name, _, fields = line.partition(":")
            received, *_, sent = [int(field) for field in fields.split()[:9]]
            counted[name.strip()] = (received, sent)
    return counted


def usable_processors() -> int:
    """Returns the number of processors this process may use."""
    return len(os.sched_getaffinity(0))


def own_bytes() -> int:
    """Returns the bytes that this thread has moved: the process's would include all tools."""
    try:
        with open("/proc/thread-self/io", encoding="ascii") as file:
            lines = dict(line.split(": ") for line in file.read().splitlines())
        return int(lines["rchar"]) + int(lines["wchar"])
    except (OSError, KeyError, ValueError):
        return 0
