"""Runs the commands of docs/guide/tour.md, in order, in one shell."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

from conftest import PATIENCE_S, ROOT, program

TOUR = (ROOT / "docs/guide/tour.md").read_text()
BLOCKS = re.findall(r"(?ms)^```sh\n(.*?)^```$", TOUR)


def free_ports(text: str) -> dict[str, str]:
    """For each port of the tour a free one; a node also takes the one after it."""
    numbers = sorted(set(re.findall(r"\b70\d\d\b", text)))
    held, found = [], {}
    for number in numbers:
        while True:
            first, second = socket.socket(), socket.socket()
            held += [first, second]
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            found[number] = str(port)
            break
    # A probe's far end is at the port after that of the disk.
    if "7022" in found and "7021" in found:
        found["7022"] = str(int(found["7021"]) + 1)
    for one in held:
        one.close()
    return found


def test_the_commands_of_the_tour_work_one_after_the_other(binary: str, tmp_path: Path) -> None:
    for needed in ("mkfs.ext4", "md5sum", "fusermount3", "fls"):
        program(needed)
    blocks = [block for block in BLOCKS if "bench storage" not in block]
    # Measuring storage takes minutes, and has tests of its own; all else is run.
    assert len(blocks) == len(BLOCKS) - 1 and len(blocks) >= 9
    script = "".join(blocks)
    # The binary and the package are built already.
    script = script.replace('make static && export PATH="$PWD/target/static:$PATH"\n', "")
    script = re.sub(r"(?m)^python3 -m venv .*\nexport CHEETAH_PYTHON=.*\n", "", script)
    script = script.replace("/tmp/tour", str(tmp_path / "tour"))
    # It must not be waited for by time alone where the machine is busy.
    for number, port in free_ports(script).items():
        script = re.sub(rf"\b{number}\b", port, script)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/cheetah").symlink_to(binary)
    env = os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "CHEETAH_PYTHON": sys.executable}
    env |= {
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "HOME": str(tmp_path),
    }
    script = script.replace("sleep 1\n", "sleep 5\n")
    ran = subprocess.run(
        ["bash", "-e", "-m", "-o", "pipefail", "-c", script],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    sums = re.findall(r"(?m)^([0-9a-f]{32})  (\S+)$", ran.stdout)
    assert len(sums) >= 4 and len({digest for digest, _ in sums}) == 1, sums
    assert (tmp_path / "tour/case42.E01").is_file() and (tmp_path / "tour/first-look/report.html").is_file()
