"""Tens of millions of hashes need no more memory than a few: they are sorted on disk, and mapped."""

import sys
from pathlib import Path

from conftest import MIB, run

# Run in its own process, since it changes block sizes.
PROGRAM = Path(__file__).with_name("large_list.py")


def test_a_longer_list_takes_no_more_memory(tmp_path: Path) -> None:
    took = {}
    for count in (200_000, 1_000_000):
        folder = tmp_path / str(count)
        folder.mkdir()
        inside, right, most = run(sys.executable, PROGRAM, str(count), folder).split()
        assert (int(inside), right) == (count, "True")
        took[count] = int(most)
    few, many = took.values()
    # The records alone would be 13 MiB more.
    assert many - few < 6 * MIB, took
