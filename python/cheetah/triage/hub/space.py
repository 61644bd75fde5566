"""Whether there is room for the result of a triage."""

import os
import pathlib

from cheetah.error import Error
from cheetah.page import units

START_BYTES = 16 << 20
"""The bytes that a triage may take before the number of files is known."""
ROW_BYTES_MIN = 128
"""The bytes that an entry takes at least: its line of the bodyfile, and its rows in tables."""
AGAIN = "the same command then resumes the run"


def check_start(folder: pathlib.Path) -> None:
    """Raises `cheetah.Error` if there is too little space for a triage to start in a folder, which need not exist. Changes
    nothing."""
    _check(folder, START_BYTES, "nothing was written: free some space, or name another folder")


def check_rows(folder: pathlib.Path, rows: int) -> None:
    """Raises `cheetah.Error` if there is too little space for the tables of that number of entries."""
    step = f"free some space; {AGAIN}"
    _check(folder, START_BYTES // 16 + rows * ROW_BYTES_MIN, f"its {rows:,} entries are listed: {step}")


def _check(folder: pathlib.Path, wanted: int, step: str) -> None:
    there = folder
    while not there.exists() and there != there.parent:
        there = there.parent
    found = os.statvfs(there)
    free = found.f_bavail * found.f_frsize
    # Some network file systems report no blocks at all.
    if found.f_blocks and free < wanted:
        raise Error(f"{folder} may take {units.size(wanted)}, and its file system has {units.size(free)} free; {step}")
