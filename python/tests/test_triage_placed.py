"""A triage and a run on a real Dask cluster whose workers are on the hosts of a drive: two addresses of loopback stand for hosts."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import triage_images
from conftest import MIB, PATIENCE_S, run
from test_triage_cluster import TABLES, Cluster

import cheetah
from cheetah.placing import Placement, part_bytes, parts_of
from cheetah.run.parts import Part, divide
from cheetah.run.workers import Cluster as RunCluster
from cheetah.triage.hub.closing import DONE
from cheetah.triage.hub.run import Run
from cheetah.triage.settings import Settings
from cheetah.triage.task import Event

HOSTS = ("127.0.0.2", "127.0.0.3")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A scheduler, without workers yet."""
    pytest.importorskip("distributed")
    for limit in ("CONNECT_S", "WORKERS_S"):
        monkeypatch.setattr(f"cheetah.triage.workers.cluster.{limit}", PATIENCE_S)
    folder = tmp_path / "cluster"
    folder.mkdir()
    made = Cluster(folder)
    yield made
    made.end()


@pytest.fixture
def workers(cluster: Cluster) -> list[subprocess.Popen[bytes]]:
    """A worker on each host, known to the scheduler."""
    import distributed

    running = [cluster.worker("--host", host) for host in HOSTS]
    client: Any = distributed.Client(cluster.address, set_as_default=False)
    client.wait_for_workers(len(HOSTS), timeout=PATIENCE_S)
    client.close()
    return running


@pytest.fixture
def drive(binary: str, tmp_path: Path) -> Iterator[Callable[[Path, str], Path]]:
    """Makes a drive with an image in it, over a node on each host."""
    running: list[subprocess.Popen[str]] = []
    environment = {name: value for name, value in os.environ.items() if name != "TMPDIR"}

    def make(image: Path, layout: str) -> Path:
        nodes = []
        for host in HOSTS:
            argv = [binary, "--json", "node", "--memory", "48MiB", "--listen", f"{host}:0"]
            running.append(subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, text=True))
            stdout = running[-1].stdout
            assert stdout is not None
            nodes.append(json.loads(stdout.readline())["nbd"])
        path = tmp_path / f"{layout}.drive"
        run(binary, "create", path, "--nodes", ",".join(nodes), "--layout", layout, "--from", image)
        return path

    yield make
    for node in running:
        node.terminate()
        node.wait(PATIENCE_S)


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, dict[str, Any]]]:
    """What was given to Dask: the second argument of each call, which names the work, and how it was to be done."""
    import distributed

    seen: list[tuple[Any, dict[str, Any]]] = []
    submit = distributed.Client.submit

    def noted(self: Any, function: Any, *arguments: Any, **how: Any) -> Any:
        seen.append((arguments, how))
        return submit(self, function, *arguments, **how)

    monkeypatch.setattr(distributed.Client, "submit", noted)
    return seen


def words(tmp_path: Path) -> tuple[str, ...]:
    """Something to look for, so that unallocated space is searched."""
    path = tmp_path / "words.txt"
    path.write_text("inside\n")
    return (str(path),)


@pytest.mark.usefixtures("workers")
def test_tasks_are_placed_on_the_hosts_that_hold_their_bytes_and_the_result_is_the_same(
    cluster: Cluster,
    drive: Callable[[Path, str], Path],
    submitted: list[tuple[Any, dict[str, Any]]],
    tmp_path: Path,
) -> None:
    image = triage_images.ext4(tmp_path)
    path = drive(image, "linear")
    with cheetah.open(path) as device:
        held = {part.offset: part.hosts for part in parts_of(device)}
        assert part_bytes(device.size) == MIB and {(host,) for host in HOSTS} <= set(held.values())
    keywords = words(tmp_path)
    alone = Settings(str(path), str(tmp_path / "alone"), workers=1, keywords=keywords)
    assert Run(alone, lambda event: None).go()[0] == DONE
    placed = Settings(str(path), str(tmp_path / "out"), scheduler=cluster.address, keywords=keywords)
    code, summary = Run(placed, lambda event: None).go()
    found = json.loads((tmp_path / "alone/summary.json").read_text())
    assert (code, summary["problems"]) == (DONE, found["problems"]) and "placement" not in found
    for name in TABLES:
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()
    asked = [(arguments[0], how["workers"]) for arguments, how in submitted if "workers" in how]
    assert asked and all(how["allow_other_workers"] for _, how in submitted if "workers" in how)
    assert summary["placement"] == {"tasks": len(submitted), "placed": len(asked)}
    for task, at in asked:
        chosen = {worker.rpartition("://")[2].rpartition(":")[0] for worker in at}
        # The tasks that the test can follow: all of their bytes are on one host.
        hosts = {
            held[place // MIB * MIB] for start, length in task.ranges for place in range(start, start + length, 512)
        }
        assert len(hosts) > 1 or {(host,) for host in chosen} == hosts


@pytest.mark.usefixtures("workers")
def test_nothing_is_placed_over_a_stripe_as_every_host_holds_some_of_each_part(
    cluster: Cluster, drive: Callable[[Path, str], Path], tmp_path: Path
) -> None:
    path = drive(triage_images.ext4(tmp_path), "stripe")
    settings = Settings(str(path), str(tmp_path / "out"), scheduler=cluster.address)
    code, summary = Run(settings, lambda event: None).go()
    assert (code, summary["placement"]["placed"]) == (DONE, 0)
    assert summary["placement"]["tasks"] > 0


def test_tasks_placed_at_a_worker_that_is_killed_are_done_by_others(
    cluster: Cluster,
    workers: list[subprocess.Popen[bytes]],
    drive: Callable[[Path, str], Path],
    tmp_path: Path,
) -> None:
    image = triage_images.ext4(tmp_path)
    path = drive(image, "linear")
    keywords = words(tmp_path)
    alone = Settings(str(path), str(tmp_path / "alone"), workers=1, keywords=keywords)
    assert Run(alone, lambda event: None).go()[0] == DONE

    def tell(event: Event) -> None:
        if event.stage == "content":
            workers[0].kill()

    placed = Settings(str(path), str(tmp_path / "out"), scheduler=cluster.address, keywords=keywords)
    code, _ = Run(placed, tell).go()
    assert code == DONE
    assert workers[0].wait(PATIENCE_S) != 0 and workers[1].poll() is None
    for name in TABLES:
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()


@pytest.mark.usefixtures("workers")
def test_the_parts_of_a_run_are_placed_once_and_begun_anew_anywhere(
    cluster: Cluster, drive: Callable[[Path, str], Path], tmp_path: Path
) -> None:
    image = tmp_path / "disk.raw"
    image.write_bytes(os.urandom(8 * MIB))
    with cheetah.open(drive(image, "linear")) as device:
        held = parts_of(device)
    made = RunCluster(cluster.address, held)
    try:
        parts = divide(8 * MIB, 4)
        told = made._placed(parts)
        hosts = [[worker.split(":")[1].lstrip("/") for worker in told[part.number]["workers"]] for part in parts]
        assert hosts == [[HOSTS[0]]] * 2 + [[HOSTS[1]]] * 2
        assert made.placement == Placement(4, 4)
        assert made._placed(parts[:1]) == {1: {}}
        # A part over both hosts: all workers are as near.
        assert made._placed([Part(9, 0, 8 * MIB)]) == {9: {}}
    finally:
        made._client.close()
