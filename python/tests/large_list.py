"""Converts a list of many hashes and searches it: `python large_list.py COUNT FOLDER` prints the number of records,
whether all answers were right, and the peak memory."""

import hashlib
import pathlib
import sys

import numpy as np
from triage_many import Memory

from cheetah.triage.search import hashset, hashtext

# Smaller blocks than otherwise, like the list.
hashtext._CHUNK_BYTES = hashset._PIECE_BYTES = 1 << 20
PIECE = 100_000


def digests(start: int, count: int) -> np.ndarray:
    """Returns that many different records of 16 bytes, unsorted."""
    found = np.zeros((count, 2), ">u8")
    found[:, 0] = np.arange(start, start + count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return found.view(np.uint8).reshape(count, 16)


def main(count: int, folder: pathlib.Path) -> None:
    """Writes the list as text, opens it, and searches for hashes that are in it and others."""
    path = folder / "list.txt"
    with path.open("w") as file:
        for start in range(0, count, PIECE):
            file.writelines(one.tobytes().hex() + "\n" for one in digests(start, min(PIECE, count - start)))
    memory = Memory()
    memory.start()
    (made,) = hashset.open_lists([str(path)], cache=str(folder / "cache"))
    inside = [one.tobytes() for one in digests(count // 2, 5000)]
    outside = [hashlib.md5(one).digest() for one in inside]
    right = all(made.contains(inside)) and not any(made.contains(outside))
    print(made.count, right, memory.end())


if __name__ == "__main__":
    main(int(sys.argv[1]), pathlib.Path(sys.argv[2]))
