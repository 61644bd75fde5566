"""A source behind iSCSI, served by tgtd: read as a file object, and triaged."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import triage_images
from conftest import PATIENCE_S, program, run
from triage_listing import by_fls

import cheetah

TARGET = "iqn.2001-04.com.example:case42"


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """An ext4 volume."""
    return triage_images.ext4(tmp_path)


@pytest.fixture
def uri(image: Path, tmp_path: Path) -> Iterator[str]:
    """The server. While it has targets it ignores all signals but SIGKILL."""
    tgtd, tgtadm = program("tgtd"), program("tgtadm")
    if os.geteuid() != 0:
        pytest.skip("tgtd needs root")
    control = {**os.environ, "TGT_IPC_SOCKET": str(tmp_path / "control")}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    argv = [tgtd, "-f", "-C", "1", "--iscsi", f"portal=127.0.0.1:{port}"]
    server = subprocess.Popen(argv, env=control, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + PATIENCE_S
        while True:
            assert server.poll() is None and time.monotonic() < until, "tgtd does not start"
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.02)
        for mode, op, *more in (
            ("target", "new", "-T", TARGET),
            ("target", "bind", "-I", "ALL"),
            ("logicalunit", "new", "--lun", "1", "-b", str(image)),
            ("logicalunit", "update", "--lun", "1", "--params", "readonly=1"),
        ):
            run(tgtadm, "-C", "1", "--lld", "iscsi", "--mode", mode, "--op", op, "--tid", "1", *more, env=control)
        yield f"iscsi://127.0.0.1:{port}/{TARGET}/1"
    finally:
        server.kill()
        server.wait(PATIENCE_S)


def test_a_logical_unit_is_read_and_triaged_like_its_image(uri: str, image: Path, tmp_path: Path) -> None:
    with cheetah.open(uri) as device:
        assert device.pread(0, device.size) == image.read_bytes()
    out = tmp_path / "out"
    said = run(sys.executable, "-m", "cheetah.triage", uri, "--out", out, "--workers", "2", "--json")
    summary = json.loads(said.splitlines()[-1])
    assert (summary["complete"], summary["problems"]) == (True, [])
    assert (out / "bodyfile.txt").read_bytes().splitlines() == by_fls(image)
    # Two workers, the survey and read-ahead transfer each byte once.
    assert 0 < summary["coverage"]["link"]["source_bytes"] <= image.stat().st_size
