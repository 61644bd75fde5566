"""Runs the commands of docs/guide/tour.md, in order, in one shell."""

from __future__ import annotations

import re
from pathlib import Path

import pages
from conftest import ROOT, program


def ports(script: str) -> dict[str, str]:
    """For each port of the tour a free one."""
    numbers = sorted(set(re.findall(r"\b70\d\d\b", script)) - {"7022"})
    found = dict(zip(numbers, map(str, pages.free_ports(len(numbers))), strict=True))
    # A probe's far end is at the port after that of the disk.
    return found | {"7022": str(int(found["7021"]) + 1)}


def test_the_commands_of_the_tour_work_one_after_the_other(binary: str, tmp_path: Path) -> None:
    for needed in ("mkfs.ext4", "md5sum", "fusermount3", "fls"):
        program(needed)
    every = pages.blocks("tour.md")
    # Measuring storage takes minutes, and has tests of its own; all else is run.
    blocks = [block for block in every if "bench storage" not in block]
    assert len(blocks) == len(every) - 1 and len(blocks) >= 9
    script = "".join(blocks)
    # The binary and the package are built already.
    script = pages.changed(script, {'make static && export PATH="$PWD/target/static:$PATH"\n': ""})
    script = re.sub(r"(?m)^python3 -m venv .*\nexport CHEETAH_PYTHON=.*\n", "", script)
    script = pages.changed(script, {"/tmp/tour": str(tmp_path / "tour")})
    free = ports(script)
    script = re.sub(r"\b70\d\d\b", lambda port: free[port[0]], script)
    said = pages.run_script(script, binary, tmp_path, cwd=ROOT)
    sums = re.findall(r"(?m)^([0-9a-f]{32})  (\S+)$", said)
    assert len(sums) >= 4 and len({digest for digest, _ in sums}) == 1, sums
    assert (tmp_path / "tour/case42.E01").is_file() and (tmp_path / "tour/first-look/report.html").is_file()
