"""A million files need little more memory than a few thousand."""

import sys
from pathlib import Path

from conftest import run

# Importing it changes the sizes of batches.
MANY = Path(__file__).with_name("triage_many.py")

A_FILE_BYTES_MAX = 1200
"""The memory per file of the process that holds the result, including memory that allocators retain. Rows held as
Python objects would take several times as much. Between 100,000 and 300,000 files, it is 90 bytes."""


def test_memory_is_bounded_with_many_files(tmp_path: Path) -> None:
    took = {}
    for files in (10_000, 100_000):
        folder = tmp_path / str(files)
        folder.mkdir()
        listed, most = run(sys.executable, MANY, str(files), folder).split()
        assert int(listed) == files
        took[files] = int(most)
    (few, least), (many, most) = took.items()
    assert (most - least) / (many - few) < A_FILE_BYTES_MAX, took
