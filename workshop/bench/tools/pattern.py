"""Runs `reader.py` on a file."""

import json
import os
import sys
from typing import Any

from cheetah.bench.process import run
from cheetah.bench.units import MIB

READER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "reader.py")


def read(
    path: str, pattern: str, record_bytes: int, size_bytes: int, seconds_max: float = 60, advice: str = "none"
) -> Any:
    """Reads the file in the pattern; returns MiB/s of the requested bytes. `advice` is one of the reader's."""
    argv = [sys.executable, "-S", READER, path, str(size_bytes), str(record_bytes), pattern, str(seconds_max), advice]
    answer = json.loads(run(argv))
    return answer["bytes"] / answer["seconds"] / MIB
