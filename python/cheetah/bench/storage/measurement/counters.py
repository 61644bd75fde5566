"""Counters of the machine while a tool runs: the target's device, processors, memory, network; and the bottleneck of
the tool."""

import contextlib
import dataclasses
import os
import time
from collections.abc import Mapping
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SECTOR_BYTES = 512
"""The unit of the kernel's counters, independent of the device."""
BUSY_SHARE = 0.8
"""From this share on a device or a link is a bottleneck."""
FULL_SHARE = 0.9
"""From this share on a processor is a bottleneck."""
STALLED_SHARE = 0.3
"""From this share on, stalls on storage decide if nothing was seen busy."""
_MEMORY_STALLED_SHARE = 0.2


@dataclasses.dataclass(frozen=True)
class Counters:
    """All counters at one moment, counted from boot."""

    at_s: float
    device_read_bytes: int | None
    device_written_bytes: int | None
    device_busy_s: float | None
    """How long the device has been busy."""
    processors_busy: int
    """Ticks of all processors."""
    processors_stolen: int
    """Ticks that the host of a virtual machine has given to others."""
    processors_total: int
    stalled_s: Mapping[str, float]
    """"io", "memory": how long at least one process has waited for it. Empty if the kernel does not count."""
    network_bytes: Mapping[str, tuple[int, int]]
    """For each interface: received, sent."""


def read(device: str | None) -> Counters:
    """Returns the current counters, with those of the device "major:minor"."""
    disk = _device(device)
    busy, stolen, total = _processors()
    return Counters(
        at_s=time.monotonic(),
        device_read_bytes=disk[0] if disk else None,
        device_written_bytes=disk[1] if disk else None,
        device_busy_s=disk[2] if disk else None,
        processors_busy=busy,
        processors_stolen=stolen,
        processors_total=total,
        stalled_s={what: stalled for what in ("io", "memory") if (stalled := _stalled_s(what)) is not None},
        network_bytes=_network(),
    )


def shares(
    before: Counters,
    after: Counters,
    tool_share: float,
    links: Mapping[str, float],
    work_s: float | None = None,
    start_cpu_s: float = 0.0,
) -> dict[str, float]:
    """Returns how busy everything was between two readings, 0 to 1 each: "tool" of one processor (above 1 with
    several), "processors", "stolen", "device", "io stalled", "memory stalled", "network". Unknown shares are omitted.

    `tool_share` is measured elsewhere; `links` is the capacity of each interface in bytes per second each way.
    `work_s` is how long the tool worked between the readings, if it spent the rest, and `start_cpu_s`, on starting.
    """
    elapsed_s = max(after.at_s - before.at_s, 1e-6)
    work_s = min(max(work_s or elapsed_s, 1e-6), elapsed_s)
    busy_shares = {"tool": tool_share}
    if ticks := (after.processors_total - before.processors_total) * work_s / elapsed_s:
        busy_shares["processors"] = (after.processors_busy - before.processors_busy - start_cpu_s * TICKS_PER_S) / ticks
    if ticks := after.processors_total - before.processors_total:
        busy_shares["stolen"] = (after.processors_stolen - before.processors_stolen) / ticks
    if before.device_busy_s is not None and after.device_busy_s is not None:
        busy_shares["device"] = (after.device_busy_s - before.device_busy_s) / work_s
    for what, stalled_s in after.stalled_s.items():
        busy_shares[f"{what} stalled"] = (stalled_s - before.stalled_s.get(what, stalled_s)) / work_s
    loads = [
        max(now - then for now, then in zip(after.network_bytes[name], before.network_bytes[name], strict=True)) / rate
        for name, rate in links.items()
        if rate and name in before.network_bytes and name in after.network_bytes
    ]
    if loads:
        busy_shares["network"] = max(loads) / work_s
    return {
        what: round(share if what == "tool" else min(max(share, 0.0), 1.0), 4) for what, share in busy_shares.items()
    }


def bottleneck(busy: Mapping[str, float], processors: int) -> str:
    """The bottleneck of a tool, from `shares`; the first of these that applies:

    1. memory: a process waited for it for 20 % of the time (the machine was short of it);
    2. processors (all): all were busy for 90 % of the time;
    3. processor (one): the tool used 90 % of one or more;
    4. network: a link carried 80 % of what it takes;
    5. storage: the target's device was busy for 80 % of the time,
       or a process waited for storage for 30 % of it;
    6. unclear: nothing of this.
    """
    if busy.get("memory stalled", 0.0) >= _MEMORY_STALLED_SHARE:
        return "memory"
    if processors > 1 and busy.get("processors", 0.0) >= FULL_SHARE:
        return "processors (all)"
    if busy.get("tool", 0.0) >= FULL_SHARE:
        return "processor (one)"
    if busy.get("network", 0.0) >= BUSY_SHARE:
        return "network"
    if busy.get("device", 0.0) >= BUSY_SHARE or busy.get("io stalled", 0.0) >= STALLED_SHARE:
        return "storage"
    return "unclear"


def network_bytes(before: Counters, after: Counters) -> int | None:
    """Returns the most bytes over one interface in one direction; None if there is only loopback."""
    moved = [
        now - then
        for name, counted in after.network_bytes.items()
        if name in before.network_bytes and name != "lo"
        for now, then in zip(counted, before.network_bytes[name], strict=True)
    ]
    return max(moved, default=None)


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


def _device(device: str | None) -> tuple[int, int, float] | None:
    """Returns bytes read and written, and busy seconds; None if the kernel does not count."""
    if device is None:
        return None
    try:
        fields = Path(f"/sys/dev/block/{device}/stat").read_text().split()
        return int(fields[2]) * SECTOR_BYTES, int(fields[6]) * SECTOR_BYTES, int(fields[9]) / 1000
    except (OSError, IndexError, ValueError):
        return None


def _processors() -> tuple[int, int, int]:
    """Returns ticks busy, stolen and total, over all processors."""
    with open("/proc/stat", encoding="ascii") as file:
        ticks = [int(field) for field in file.readline().split()[1:9]]
    idle, waiting, stolen = ticks[3], ticks[4], ticks[7]
    return sum(ticks) - idle - waiting - stolen, stolen, sum(ticks)


def _stalled_s(what: str) -> float | None:
    try:
        with open(f"/proc/pressure/{what}", encoding="ascii") as file:
            return int(file.readline().rpartition("total=")[2]) / 1e6
    except (OSError, ValueError):
        return None


def _network() -> dict[str, tuple[int, int]]:
    counted = {}
    with contextlib.suppress(OSError), open("/proc/net/dev", encoding="ascii") as file:
        for line in file.readlines()[2:]:
            name, _, fields = line.partition(":")
            received, *_, sent = [int(field) for field in fields.split()[:9]]
            counted[name.strip()] = (received, sent)
    return counted


def processors() -> int:
    """Returns the number of processors this process may use."""
    return len(os.sched_getaffinity(0))
