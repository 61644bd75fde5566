"""A drive triaged by a cluster started with the commands of docs/cluster.md: its workers read the nodes."""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import PATIENCE_S, ROOT, run
from triage_listing import by_fls

TABLES = ("bodyfile.txt", "files.parquet", "timeline.parquet", "findings.parquet")
PAGE = (ROOT / "docs/cluster.md").read_text(encoding="utf-8")


def command(beginning: str, **changes: str) -> list[str]:
    """Returns a command of the page with other addresses and places."""
    (line,) = re.findall(rf"^{beginning}.*$", PAGE, re.MULTILINE)
    for old, new in changes.items():
        assert old in line
        line = line.replace(old, new)
    return shlex.split(line)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """A scheduler, and the process that has the workers: the address of the one, the id of the other."""
    pytest.importorskip("distributed")
    running: list[subprocess.Popen[bytes]] = []

    def start(argv: list[str]) -> int:
        assert argv[0] == "dask"
        log = open(tmp_path / f"dask{len(running)}.log", "wb")
        argv = [sys.executable, "-m", *argv, "--no-dashboard"]
        running.append(subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True, cwd=tmp_path))
        return running[-1].pid

    place = tmp_path / "scheduler.json"
    scheduler = command("dask scheduler", **{"10.0.0.5": "127.0.0.1"})
    start([*scheduler, "--port", "0", "--scheduler-file", str(place)])
    until = time.monotonic() + PATIENCE_S
    while not place.exists() or not place.read_text():
        assert time.monotonic() < until, "the scheduler does not start"
        time.sleep(0.05)
    address = json.loads(place.read_text())["address"]
    # As many as there are processors, on the page; here two.
    argv = command("dask worker", **{"tcp://10.0.0.5:8786": address, "--nworkers -1": "--nworkers 2"})
    yield address, start(argv)
    for process in reversed(running):
        # With all that they started: they have sessions of their own.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE_S)


def readers(ports: set[int]) -> dict[int, set[int]]:
    """Processes that are connected to these ports of this machine, and to which."""
    import psutil

    found: dict[int, set[int]] = {}
    for one in psutil.net_connections("tcp"):
        if one.status == psutil.CONN_ESTABLISHED and one.raddr and one.raddr.port in ports and one.pid:
            found.setdefault(one.pid, set()).add(one.raddr.port)
    return found


def test_the_workers_of_a_cluster_read_a_drives_nodes_themselves(
    cluster: tuple[str, int], ext4: Path, nodes: str, drive: Callable[[Path, Path], Path], binary: str, tmp_path: Path
) -> None:
    import psutil

    address, workers = cluster
    path = drive(tmp_path / "case42.drive", ext4)
    environment = {**os.environ, "CHEETAH_PYTHON": sys.executable}
    alone = [binary, "triage", str(path), "--out", str(tmp_path / "alone"), "--workers", "1"]
    run(*alone, env=environment)
    places = {"/cases/case42.drive": str(path), "--out case42": f"--out {tmp_path}/out", "tcp://10.0.0.5:8786": address}
    _, *words = command("cheetah triage /cases/case42.drive", **places)
    said = run(binary, *words, "--json", env=environment)
    summary = json.loads(said.splitlines()[-1])
    assert (summary["complete"], summary["problems"], summary["coverage"]["link"]) == (True, [], {})
    for name in TABLES:
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()
    assert (tmp_path / "out/bodyfile.txt").read_bytes().splitlines() == by_fls(ext4)

    # A worker has the drive open until it is given another.
    ports = {int(node.rpartition(":")[2]) for node in nodes.split(",")}
    mine = {one.pid for one in psutil.Process(workers).children(recursive=True)}
    connected = {pid: reached for pid, reached in readers(ports).items() if pid in mine}
    assert connected and all(reached == ports for reached in connected.values())
    run(binary, "destroy", path, "--force")
