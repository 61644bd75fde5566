"""A tree of this machine's own files to work on, the same at every call."""

import os
import random
import shutil
from collections.abc import Iterable, Iterator

from cheetah.bench.units import KIB, MIB

ROOTS = ("/usr/bin", "/usr/lib", "/usr/share")
SMALL_BYTES = (KIB, MIB)
LARGE_BYTES = (MIB, 64 * MIB)


def _candidates() -> Iterator[tuple[int, str]]:
    for root in ROOTS:
        for directory, subdirectories, names in os.walk(root):
            subdirectories.sort()
            for name in sorted(names):
                path = os.path.join(directory, name)
                if os.path.isfile(path) and not os.path.islink(path):
                    yield os.path.getsize(path), path


def _copy(chosen: Iterable[tuple[int, str]], directory: str) -> None:
    for number, (_, path) in enumerate(chosen):
        parent = os.path.join(directory, f"{number // 50:03}")
        os.makedirs(parent, exist_ok=True)
        shutil.copyfile(path, os.path.join(parent, f"{number:05}-{os.path.basename(path)}"))


def make(directory: str, files: int, bytes_max: int) -> int:
    """Copies up to `files` small files into the directory, then large ones, at most `bytes_max` in total; returns the
    bytes copied."""
    candidates = list(_candidates())
    chooser = random.Random(1)
    small = [one for one in candidates if SMALL_BYTES[0] <= one[0] < SMALL_BYTES[1]]
    chosen = chooser.sample(small, min(files, len(small)))
    total = sum(size for size, _ in chosen)
    while chosen and total > bytes_max:
        total -= chosen.pop()[0]
    large = [one for one in candidates if LARGE_BYTES[0] <= one[0] < LARGE_BYTES[1]]
    chooser.shuffle(large)
    for size, path in large:
        if total + size <= bytes_max:
            chosen.append((size, path))
            total += size
    _copy(chosen, directory)
    return total
