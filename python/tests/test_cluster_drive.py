"""A drive of a room, triaged by a cluster started with the commands of docs/guide/cluster.md: its workers read the nodes, and
only members of the room that may read drives take part."""

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import PATIENCE_S, ROOT, run
from triage_listing import by_fls

TABLES = ("bodyfile.txt", "files.parquet", "timeline.parquet", "findings.parquet")
PAGE = (ROOT / "docs/guide/cluster.md").read_text(encoding="utf-8")


def command(beginning: str, **changes: str) -> list[str]:
    """Returns a command of the page with other addresses and places."""
    (line,) = re.findall(rf"^{beginning}.*$", PAGE, re.MULTILINE)
    for old, new in changes.items():
        assert old in line
        line = line.replace(old, new)
    return shlex.split(line)


@pytest.fixture
def room(tmp_path: Path, binary: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A room on this machine, the only one that processes of this test know."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    run(binary, "room", "init", "lab")
    monkeypatch.setenv("CHEETAH_ROOM", "lab")
    return "lab"


@pytest.fixture
def nodes(room: str, binary: str) -> Iterator[str]:
    """Two nodes of the room, as `--nodes` takes them."""
    argv = [binary, "--json", "node", "--memory", "48MiB", "--listen", "127.0.0.1:0", "--room", room]
    running = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        ready = [json.loads(node.stdout.readline()) for node in running if node.stdout]
        assert all(node["transport"] == "tls" for node in ready)
        yield ",".join(node["nbd"] for node in ready)
    finally:
        for node in running:
            node.terminate()
            node.wait(PATIENCE_S)


def own_address() -> str:
    """An address of this machine that other machines might reach, if it has one."""
    import psutil

    found = (each.address for addresses in psutil.net_if_addrs().values() for each in addresses
             if each.family == socket.AF_INET and not each.address.startswith("127."))  # fmt: skip
    return next(found, "127.0.0.1")


@pytest.fixture
def cluster(tmp_path: Path, room: str) -> Iterator[tuple[str, int]]:
    """A scheduler and a process with workers: the scheduler's address, and the process's id."""
    pytest.importorskip("distributed")
    running: list[subprocess.Popen[bytes]] = []

    def start(argv: list[str]) -> int:
        assert argv[:3] == ["python3", "-m", "cheetah.dask"]
        log = open(tmp_path / f"dask{len(running)}.log", "wb")
        argv = [sys.executable, *argv[1:]]
        running.append(subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True, cwd=tmp_path))
        return running[-1].pid

    place = tmp_path / "scheduler.json"
    scheduler = command("python3 -m cheetah.dask scheduler", **{"10.0.0.5": own_address()})
    start([*scheduler, "--port", "0", "--scheduler-file", str(place)])
    until = time.monotonic() + PATIENCE_S
    while not place.exists() or not place.read_text():
        assert time.monotonic() < until, "the scheduler does not start"
        assert running[0].poll() is None, (tmp_path / "dask0.log").read_text()
        time.sleep(0.05)
    address = json.loads(place.read_text())["address"]
    # The page starts one worker per processor; here there are two.
    argv = command(
        "python3 -m cheetah.dask worker", **{"tls://10.0.0.5:8786": address, "--nworkers -1": "--nworkers 2"}
    )
    yield address, start(argv)
    for process in reversed(running):
        # Each has a session of its own, so that its children end, too.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE_S)


def readers(ports: set[int]) -> dict[int, set[int]]:
    """The processes connected to these ports of this machine, each with its ports."""
    import psutil

    found: dict[int, set[int]] = {}
    for one in psutil.net_connections("tcp"):
        if one.status == psutil.CONN_ESTABLISHED and one.raddr and one.raddr.port in ports and one.pid:
            found.setdefault(one.pid, set()).add(one.raddr.port)
    return found


@pytest.mark.parametrize("seal", ["--no-seal", "--seal"])
def test_the_workers_of_a_cluster_read_a_drives_nodes_themselves(
    cluster: tuple[str, int], ext4: Path, nodes: str, binary: str, tmp_path: Path, seal: str
) -> None:
    import psutil

    address, workers = cluster
    assert address.startswith("tls://")
    path = tmp_path / "case42.drive"
    run(binary, "create", path, "--nodes", nodes, "--layout", "stripe", seal, "--from", ext4)
    sealed_for = json.loads(run(binary, "--json", "status", path)).get("sealed_for")
    assert bool(sealed_for) == (seal == "--seal")
    environment = {**os.environ, "CHEETAH_PYTHON": sys.executable}
    alone = [binary, "triage", str(path), "--out", str(tmp_path / "alone"), "--workers", "1"]
    run(*alone, env=environment)
    places = {"/cases/case42.drive": str(path), "--out case42": f"--out {tmp_path}/out", "tls://10.0.0.5:8786": address}
    _, *words = command("cheetah triage /cases/case42.drive", **places)
    said = run(binary, *words, "--json", env=environment)
    summary = json.loads(said.splitlines()[-1])
    assert (summary["complete"], summary["problems"], summary["coverage"]["link"]) == (True, [], {})
    for folder in ("alone", "out"):
        found = json.loads((tmp_path / folder / "summary.json").read_text())["source"]["connections"]
        assert len(found) == 2 and all("TLS 1.3, " in said and "(node) of room " in said for said in found), found
    for name in TABLES:
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()
    assert (tmp_path / "out/bodyfile.txt").read_bytes().splitlines() == by_fls(ext4)

    # A worker has the drive open until it gets another.
    ports = {int(node.rpartition(":")[2]) for node in nodes.split(",")}
    mine = {one.pid for one in psutil.Process(workers).children(recursive=True)}
    connected = {pid: reached for pid, reached in readers(ports).items() if pid in mine}
    assert connected and all(reached == ports for reached in connected.values())
    run(binary, "destroy", path, "--force")


def kill_server(address: str) -> None:
    """Kills the process that listens at an address of this machine."""
    import psutil

    port = int(address.rpartition(":")[2])
    listening = [one for one in psutil.net_connections("tcp") if one.status == psutil.CONN_LISTEN]
    (server,) = {one.pid for one in listening if one.laddr.port == port}
    assert server
    psutil.Process(server).kill()


def test_the_workers_of_a_cluster_read_a_drive_that_has_lost_a_node(
    cluster: tuple[str, int], ext4: Path, nodes: str, binary: str, tmp_path: Path
) -> None:
    address, _ = cluster
    path = tmp_path / "case42.drive"
    run(binary, "create", path, "--nodes", nodes, "--layout", "mirror", "--from", ext4)
    kill_server(nodes.split(",")[0])
    places = {"/cases/case42.drive": str(path), "--out case42": f"--out {tmp_path}/out", "tls://10.0.0.5:8786": address}
    _, *words = command("cheetah triage /cases/case42.drive", **places)
    said = run(binary, *words, "--json", env={**os.environ, "CHEETAH_PYTHON": sys.executable})
    assert json.loads(said.splitlines()[-1])["complete"]
    assert (tmp_path / "out/bodyfile.txt").read_bytes().splitlines() == by_fls(ext4)


def speaks_tls(address: str, port: int) -> bool:
    """Returns whether a server answers a TLS handshake. It may still refuse the client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((address, port), PATIENCE_S) as plain, context.wrap_socket(plain):
            return True
    except ssl.SSLError:
        return False


def test_only_readers_of_the_room_reach_the_scheduler_and_other_machines_reach_nothing_in_clear(
    cluster: tuple[str, int], binary: str, tmp_path: Path
) -> None:
    import distributed
    import psutil

    from cheetah.triage.workers.room_security import RoomSecurity

    address, _ = cluster
    run(binary, "room", "init", "other")

    def connects(room: str, role: str) -> bool:
        file = tmp_path / f"{room}-{role}.pem"
        run(binary, "room", "credential", "--room", room, "--role", role, "--out", file)
        try:
            with distributed.Client(address, security=RoomSecurity(str(file)), timeout=5, set_as_default=False) as it:
                return bool(it.submit(sum, [1, 2]).result(timeout=PATIENCE_S) == 3)
        except OSError:
            return False

    assert [role for role in ("examiner", "analyst", "node", "agent") if connects("lab", role)] == [
        "examiner",
        "analyst",
    ]
    assert not connects("other", "examiner")
    with pytest.raises(OSError):
        distributed.Client(address.replace("tls://", "tcp://"), timeout=3, set_as_default=False)

    tree = [psutil.Process(), *psutil.Process().children(recursive=True)]
    servers = {each.laddr for process in tree for each in process.net_connections() if each.status == "LISTEN"}
    open_to_others = {at for at in servers if not at.ip.startswith("127.")}
    if not own_address().startswith("127."):
        assert len(open_to_others) >= 3, "a scheduler and two workers"
    assert [at for at in open_to_others if not speaks_tls(own_address(), at.port)] == []


def test_the_worker_of_a_revoked_member_is_cut_off_and_refused(
    cluster: tuple[str, int], binary: str, tmp_path: Path
) -> None:
    import distributed

    from cheetah.triage.workers.room_security import RoomSecurity

    address, _ = cluster
    # Not room_security(): it would make this process a member of the room, in later tests, too.
    own, credential = (tmp_path / f"{name}.pem" for name in ("bob", "ann"))
    for file in (own, credential):
        run(binary, "room", "credential", "--room", "lab", "--role", "analyst", "--name", file.stem, "--out", file)
    log, security = tmp_path / "ann.log", RoomSecurity(str(own))
    with distributed.Client(address, security=security, set_as_default=False) as client, log.open("wb") as said:
        client.wait_for_workers(2, timeout=PATIENCE_S)

        def until_workers(count: int) -> None:
            end = time.monotonic() + PATIENCE_S
            while len(workers := list(client.scheduler_info(n_workers=-1)["workers"])) != count:
                assert time.monotonic() < end, log.read_text()
                # A connection notices the revocation of its peer only when it is used.
                for worker in workers:
                    client.submit(os.getpid, workers=[worker], allow_other_workers=True, pure=False)
                time.sleep(0.1)

        argv = [sys.executable, "-m", "cheetah.dask", "worker", address, "--nworkers", "1"]
        environment = {**os.environ, "CHEETAH_ROOM": str(credential)}
        of_ann = subprocess.Popen(argv, stdout=said, stderr=said, env=environment, start_new_session=True)
        try:
            until_workers(3)
            run(binary, "room", "revoke", "--room", "lab", "ann")
            until_workers(2)
            with (
                pytest.raises(OSError),
                distributed.Client(address, security=RoomSecurity(str(credential)), timeout=5, set_as_default=False),
            ):
                pass
            assert client.submit(sum, [1, 2]).result(timeout=PATIENCE_S) == 3
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(of_ann.pid, signal.SIGKILL)
            of_ann.wait(PATIENCE_S)
