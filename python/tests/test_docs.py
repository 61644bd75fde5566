"""Runs the examples in docs/guide/python.md."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, run

EXAMPLES = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/guide/python.md").read_text(), re.MULTILINE | re.DOTALL)

# The expected output of each example.
PRINTS = ["b'NTFS'", "letter.txt", "letter.txt", "letter.txt", "letter.txt", "NTFS", "signatures", "different pieces"]


def test_every_example_has_an_expectation() -> None:
    assert len(EXAMPLES) == len(PRINTS)


@pytest.mark.parametrize(("example", "prints"), list(zip(EXAMPLES, PRINTS, strict=True)))
def test_an_example_prints_what_is_expected(
    example: str, prints: str, tmp_path: Path, ntfs: Path, drive: Callable[[Path, Path], Path]
) -> None:
    drive(tmp_path / "case42.drive", ntfs)
    (tmp_path / "words.txt").write_text("ntfs\n")
    script = tmp_path / "example.py"
    script.write_text(example)
    assert prints in run(sys.executable, script, cwd=tmp_path)
