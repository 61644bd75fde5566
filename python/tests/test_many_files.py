"""A real volume of many files, triaged by the command: the listing equals that of `fls`, and no process exceeds its
memory limit. `CHEETAH_FILES=1000000` does this with a million files, in a minute."""

import os
import subprocess
import sys
from pathlib import Path

import many_files
from conftest import MIB, PATIENCE_S
from triage_listing import by_fls

FILES = int(os.environ.get("CHEETAH_FILES", "30000"))
MEMORY_BYTES_MAX = 384 * MIB
"""With a million files, the largest process took 220 MiB, and all processes together 250."""


def family(pid: int) -> list[int]:
    """A process and all its descendants."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text(encoding="ascii").split()
        except OSError:
            continue
        found += [one for child in children for one in family(int(child))]
    return found


def memory_bytes(pid: int) -> int:
    """The private memory of a process, without mapped files."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    _, _, rest = status.partition("RssAnon:")
    return int(rest.split()[0]) << 10 if rest else 0


def test_many_files_are_listed_like_fls_in_bounded_memory(tmp_path: Path) -> None:
    image = many_files.make(tmp_path / "many.raw", FILES)
    argv = [sys.executable, "-m", "cheetah.triage", str(image), "--out", str(tmp_path / "out"), "--quick"]
    process, most = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL), 0
    while process.poll() is None:
        most = max(most, *map(memory_bytes, family(process.pid)))
        try:
            process.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
    assert process.wait(PATIENCE_S) == 0
    lines = (tmp_path / "out/bodyfile.txt").read_bytes().splitlines()
    assert len(lines) > FILES and lines == by_fls(image)
    assert 20 * MIB < most < MEMORY_BYTES_MAX
