"""Triage of a redundant drive that loses a node before and while it is read."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import PATIENCE_S, run

TABLES = ("bodyfile.txt", "files.parquet", "timeline.parquet", "findings.parquet")


@pytest.fixture
def nodes(binary: str) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """Three nodes, by the addresses that `--nodes` takes."""
    argv = [binary, "--json", "node", "--memory", "48MiB", "--listen", "127.0.0.1:0"]
    with contextlib.ExitStack() as stack:
        started = {}
        for _ in range(3):
            node = stack.enter_context(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True))
            stack.callback(node.kill)
            assert node.stdout
            started[json.loads(node.stdout.readline())["nbd"]] = node
        yield started


@pytest.mark.parametrize("layout", ["mirror", "parity"])
def test_triage_of_a_drive_that_loses_a_node_finds_what_triage_of_the_image_finds(
    layout: str, ext4: Path, nodes: dict[str, subprocess.Popen[str]], binary: str, tmp_path: Path
) -> None:
    environment = {**os.environ, "CHEETAH_PYTHON": sys.executable}
    drive = tmp_path / "case42.drive"
    run(binary, "create", drive, "--nodes", ",".join(nodes), "--layout", layout, "--from", ext4)
    run(binary, "triage", ext4, "--out", tmp_path / "image", "--workers", "2", env=environment)

    argv = [binary, "--json", "triage", str(drive), "--out", str(tmp_path / "killed"), "--workers", "2"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=environment) as triage:
        # The workers have it open.
        assert triage.stdout
        triage.stdout.readline()
        next(iter(nodes.values())).send_signal(signal.SIGKILL)
        triage.communicate(timeout=PATIENCE_S)
        assert triage.returncode == 0
    run(binary, "triage", drive, "--out", tmp_path / "before", "--workers", "2", env=environment)
    for name in TABLES:
        expected = (tmp_path / "image" / name).read_bytes()
        assert (tmp_path / "killed" / name).read_bytes() == expected, name
        assert (tmp_path / "before" / name).read_bytes() == expected, name
