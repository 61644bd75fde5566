"""A real Dask cluster on loopback: a scheduler and two workers, one of which is killed midway."""

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import triage_images
import triage_worker
from conftest import PATIENCE_S, noise
from test_triage_at_nodes import rule
from triage_listing import by_fls

from cheetah.triage.hub.closing import DONE
from cheetah.triage.hub.run import Run
from cheetah.triage.reading import shared_source
from cheetah.triage.settings import Settings
from cheetah.triage.task import Event

TABLES = ("bodyfile.txt", "files.parquet", "timeline.parquet", "findings.parquet", "notable.csv", "notable-md5.txt")


class Cluster:
    """Processes as started by hand."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []
        address = folder / "scheduler.json"
        self._start(
            "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(address)
        )
        until = time.monotonic() + PATIENCE_S
        while not address.exists() or not address.read_text():
            assert time.monotonic() < until, "the scheduler does not start"
            time.sleep(0.05)

        self.address: str = json.loads(address.read_text())["address"]

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        with open(self._folder / f"{len(self._running)}.log", "wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "dask", *words], stdout=log, stderr=log, start_new_session=True, cwd=self._folder
            )
        self._running.append(process)
        return process

    def worker(self, *words: str) -> subprocess.Popen[bytes]:
        """One more worker."""
        return self._start("worker", self.address, "--nthreads", "1", "--no-nanny", "--no-dashboard", *words)

    def end(self) -> None:
        """All processes, by their own id."""
        for process in reversed(self._running):
            process.kill()
            process.wait(PATIENCE_S)


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


def test_a_cluster_finds_what_one_machine_finds_and_may_lose_a_worker(cluster: Cluster, tmp_path: Path) -> None:
    image = triage_images.ext4(tmp_path)
    workers = [cluster.worker(), cluster.worker()]
    assert Run(Settings(str(image), str(tmp_path / "alone"), workers=1), lambda event: None).go()[0] == DONE
    killed: list[str] = []

    def tell(event: Event) -> None:
        if event.stage == "content" and not killed:
            killed.append(event.stage)
            workers[0].kill()

    code, summary = Run(Settings(str(image), str(tmp_path / "out"), scheduler=cluster.address), tell).go()
    assert (code, summary["problems"]) == (DONE, [])
    assert killed and workers[1].poll() is None
    for name in TABLES:
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()
    assert (tmp_path / "out/bodyfile.txt").read_bytes().splitlines() == by_fls(image)


def test_workers_of_a_cluster_read_only_the_files_that_may_have_an_atom(cluster: Cluster, tmp_path: Path) -> None:
    files = {"NONE.BIN": noise(3_000_000, 70), "SOME.BIN": noise(2_000_000, 71)}
    image, rules = triage_worker.fat(tmp_path / "image.raw", files), tmp_path / "rules.yar"
    rules.write_text(rule("some", files["SOME.BIN"][1_500_000:][:16]))
    cluster.worker()
    cluster.worker()
    read = {}
    for name, scheduler in (("alone", None), ("out", cluster.address)):
        settings = Settings(str(image), str(tmp_path / name), workers=1, scheduler=scheduler, hashes=(), at_nodes=True)
        settings = dataclasses.replace(settings, yara=(str(rules),))
        code, summary = Run(settings, lambda event: None).go()
        assert code == DONE and summary["at_nodes"]["read_all"] == []
        rows = pq.read_table(tmp_path / name / "files.parquet").to_pylist()
        read[name] = [(row["path"], row["read_state"], row["why"]) for row in rows]
        whys = {row["path"]: row["why"] for row in rows}
        assert "searched where they lie" in whys["/NONE.BIN"] and whys["/SOME.BIN"] is None
    assert read["out"] == read["alone"]
    findings = [pq.read_table(tmp_path / name / "findings.parquet").to_pylist() for name in ("alone", "out")]
    assert findings[0] == findings[1] and findings[0]


def test_a_missing_scheduler_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("cheetah.triage.workers.cluster.CONNECT_S", 1)
    image = tmp_path / "image.raw"
    image.write_bytes(os.urandom(1 << 16))
    with pytest.raises(OSError, match="no Dask scheduler answers at tcp://127.0.0.1:1"):
        Run(Settings(str(image), str(tmp_path / "out"), scheduler="tcp://127.0.0.1:1"), lambda event: None).go()


def test_a_worker_with_another_source_is_refused(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = tmp_path / "image.raw"
    image.write_bytes(os.urandom(1 << 16))
    cluster.worker()
    identity = shared_source.identity

    def other(uri: str, name: str, size: int | None = None) -> dict[str, Any]:
        found = identity(uri, name, size)
        return {**found, "samples": [*found["samples"][:-1], "another"]}

    monkeypatch.setattr(shared_source, "identity", other)
    with pytest.raises(OSError, match="has another source than the machine that started the run"):
        Run(Settings(str(image), str(tmp_path / "out"), scheduler=cluster.address), lambda event: None).go()


def test_a_worker_with_other_lists_or_versions_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    image, words = tmp_path / "image.raw", tmp_path / "words.txt"
    image.write_bytes(bytes(1 << 16))
    words.write_text("one\n")
    settings = Settings(str(image), str(tmp_path / "out"), keywords=(str(words),))
    from cheetah.triage.workers.cluster import ClusterTerms

    terms = ClusterTerms.of(str(image), settings)
    assert terms.different(ClusterTerms.of(str(image), settings)) is None
    words.write_text("two\n")
    assert terms.different(ClusterTerms.of(str(image), settings)) == "--keywords"
    older = dataclasses.replace(terms, versions={**terms.versions, "yara-x": "0.1"})
    assert terms.different(older) == "version of yara-x"


def test_a_worker_that_hangs_in_native_code_ends_itself() -> None:
    pytest.importorskip("distributed")
    code = """
import re
from cheetah.triage.workers import cluster
cluster.HANG_S = 0.5
cluster.Watch().begin()
re.match("(a*)*b", "a" * 100)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1
    assert b"Timeout" in done.stderr
