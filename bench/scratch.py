"""Temporary files of a run, on disk and in RAM."""

import os

from cheetah.bench import scratch
from cheetah.bench.scratch import drop_caches
from cheetah.bench.units import MIB

__all__ = ["DISK_DIR", "Scratch", "drop_caches", "write_random"]

DISK_DIR = os.environ.get("BENCH_DISK_DIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "out"))


class Scratch(scratch.Scratch):
    """A scratch space whose disk part is in `bench/out`, or in $BENCH_DISK_DIR."""

    def __init__(self) -> None:
        super().__init__(DISK_DIR)

    def child(self) -> "Scratch":
        """Returns a nested scratch space for one round; use it with `with`."""
        return Scratch()


def write_random(path: str, size_bytes: int) -> str:
    """Fills a file with random bytes: no zero pages, nothing to compress. Returns the path."""
    with open(path, "wb") as file:
        left = size_bytes
        while left > 0:
            left -= file.write(os.urandom(min(MIB, left)))
    return path
