"""How a client connects to near and distant servers, by the kernel's count of connections. Needs root."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.scratch import Scratch
from bench.tools.cheetah import newest_build
from cheetah.bench import verbs
from lab.network import Lab

PORT = 10809
PATIENCE_S = 60.0
NEAR, FAR = 2, 8

pytestmark = pytest.mark.usefixtures("root")


@pytest.fixture(autouse=True)
def _cheetah(monkeypatch: pytest.MonkeyPatch) -> None:
    """The binary that all tests of the command line use."""
    if program := os.environ.get("CHEETAH_STATIC") or newest_build():
        monkeypatch.setenv("CHEETAH", program)
    if not shutil.which("nbdkit"):
        pytest.skip("needs nbdkit (make test installs it)")


def comes_to(expected: int, tmp_path: Path, round_trip: str, *filters: str, patience_s: float = PATIENCE_S) -> bool:
    """Whether an export of a source behind such a link soon has that number of connections to it."""
    image = tmp_path / "image.raw"
    image.write_bytes(os.urandom(1 << 20))
    with Scratch(str(tmp_path)) as scratch, Lab(1, "1gbit", round_trip) as lab:
        site = lab.nodes[0]

        def count(*which: str) -> int:
            asked = site.command(["ss", "--no-header", "--tcp", *which, f"sport = :{PORT}"])
            return len(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines())

        argv = ["nbdkit", "--foreground", "--exit-with-parent", "--readonly", f"--ipaddr={site.address}"]
        argv += [word for word in filters if word.startswith("--")]
        argv += ["file", str(image), *(word for word in filters if not word.startswith("--"))]
        scratch.start("nbdkit", site.command(argv))
        assert soon(lambda: count("--listening"))
        export = ["export", f"nbd://{site.address}:{PORT}/", "--unix", scratch.path("socket")]
        verbs.serve(scratch, "cheetah export", export, lab.examiner.command)
        return soon(lambda: count("state", "established") == expected, patience_s)


def test_a_distant_source_is_read_over_several_connections(tmp_path: Path) -> None:
    # A client that the machine stops while it connects cannot tell, and treats the source as near.
    assert any(comes_to(FAR, tmp_path, "20ms", patience_s=15) for _ in range(4))


def test_a_distant_server_with_one_connection_keeps_one(tmp_path: Path) -> None:
    assert comes_to(1, tmp_path, "20ms", "--filter=multi-conn", "multi-conn-mode=disable")


def test_a_near_source_uses_at_most_two_connections(tmp_path: Path) -> None:
    # A machine that stalls makes it look far.
    assert any(comes_to(NEAR, tmp_path, "0.1ms", patience_s=5) for _ in range(8))


def soon(happens: Callable[[], object], patience_s: float = PATIENCE_S) -> bool:
    """Whether a condition becomes true within the time limit."""
    until = time.monotonic() + patience_s
    while not happens():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True
