"""The memory of this machine: what a target takes of it."""

from cheetah.bench.failure import BenchError
from cheetah.bench.units import GIB, MIB

# Left for tools and caches.
KEPT_BYTES = 256 * MIB


def require(need_bytes: int, what: str) -> None:
    """Raises BenchError if less is there, before anything is started: a machine without memory kills arbitrary
    processes. `what` is the subject of the sentence, in the plural."""
    need, there = need_bytes + KEPT_BYTES, available()
    if there < need:
        raise BenchError(
            f"{what} need {need / GIB:.1f} GiB of memory, and {there / GIB:.1f} GiB are there: use nodes on other "
            "machines, or a smaller image"
        )


def available() -> int:
    """Returns the memory available without swapping, in bytes."""
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    raise BenchError("/proc/meminfo does not report the available memory")
