"""A server that stalls, dies or fails during a triage: the run ends, says so, and resumes later."""

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import triage_images
from conftest import PATIENCE_S, listens, program
from triage_listing import by_fls
from triage_workers import Alone

import cheetah
from cheetah.triage.hub import run, stage_progress
from cheetah.triage.hub.closing import DONE, EVIDENCE
from cheetah.triage.hub.run import Run
from cheetah.triage.listing import walk
from cheetah.triage.reading import image, shared_source, worker
from cheetah.triage.settings import Settings
from cheetah.triage.task import Event

TABLES = ("bodyfile.txt", "files.parquet", "timeline.parquet", "findings.parquet")
TIMEOUT_S = 2.0


class Server:
    """nbdkit on one socket, which can be stopped, killed and restarted."""

    def __init__(self, source: Path, folder: Path):
        self._argv = [program("nbdkit"), "-f", "-U", str(folder / "far.sock"), "--filter=error", "file", str(source)]
        self._trigger = folder / "fail"
        self._argv += ["error-pread=EIO", "error-pread-rate=100%", f"error-pread-file={self._trigger}"]
        self._socket = folder / "far.sock"
        self.uri = f"nbd+unix:///?socket={self._socket}"
        self.start()

    def start(self) -> None:
        """Starts it, and waits until it listens."""
        self._trigger.unlink(missing_ok=True)
        self._socket.unlink(missing_ok=True)
        self._process = subprocess.Popen(self._argv, stderr=subprocess.DEVNULL)
        until = time.monotonic() + PATIENCE_S
        while not listens(self._socket):
            assert time.monotonic() < until, "nbdkit does not listen"
            time.sleep(0.01)

    def stall(self) -> None:
        """Stops its process. Connections stay open, without answers."""
        self._process.send_signal(signal.SIGSTOP)

    def pause(self) -> None:
        """Stalls it for much less than the time-out."""
        self.stall()
        threading.Timer(TIMEOUT_S / 10, lambda: self._process.send_signal(signal.SIGCONT)).start()

    def die(self) -> None:
        """Kills it."""
        self._process.kill()
        self._process.wait(PATIENCE_S)

    def fail(self) -> None:
        """Makes it answer each read with an error."""
        self._trigger.touch()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ext4 volume."""
    return triage_images.ext4(tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="module")
def undisturbed(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The result of a run over an undisturbed source."""
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "_start_workers", lambda uri, settings: Alone(uri, settings))
        assert Run(Settings(str(source), str(out)), lambda event: None).go()[0] == DONE
    return out


@pytest.fixture
def server(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """The source behind a link without prefetching, for one worker with short time-outs."""
    share, opened = cheetah.share, cheetah.open
    monkeypatch.setattr(
        cheetah, "share", lambda uri, **how: share(uri, cache=0, foresight=False, prefetch=0, timeout_s=TIMEOUT_S)
    )
    for module in (worker, shared_source):
        monkeypatch.setattr(module, "open_source", lambda uri: opened(uri, timeout_s=TIMEOUT_S))
    monkeypatch.setattr(image, "GONE_S", TIMEOUT_S)
    monkeypatch.setattr(shared_source, "PROBE_S", TIMEOUT_S)
    monkeypatch.setattr(walk, "ENTRIES_FIRST", 20)
    monkeypatch.setattr(walk, "ENTRIES_MAX", 20)
    monkeypatch.setattr(run, "_start_workers", lambda uri, settings: Alone(uri, settings))
    monkeypatch.setattr(stage_progress, "TELL_S", 0.0)
    made = Server(source, tmp_path)
    yield made
    made.die()


def at(stage: str, happens: Callable[[], None], after: int = 2) -> Callable[[Event], None]:
    """Returns an observer that calls `happens` once, at the given event of a stage."""
    seen = [0]

    def tell(event: Event) -> None:
        seen[0] += event.stage == stage
        if seen[0] == after and event.stage == stage:
            happens()

    return tell


@pytest.mark.parametrize(
    ("trouble", "stage"),
    [
        ("stall", "volumes"),
        ("stall", "listing"),
        ("stall", "content"),
        ("die", "listing"),
        ("fail", "listing"),
        ("fail", "content"),
    ],
)
def test_a_source_lost_midway_is_reported_and_the_run_resumes(
    trouble: str, stage: str, server: Server, source: Path, undisturbed: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    settings = Settings(server.uri, str(out))
    happens = getattr(server, trouble)
    began = time.monotonic()
    code, summary = Run(settings, at(stage, happens, 1 if stage == "volumes" else 2)).go()
    assert time.monotonic() - began < PATIENCE_S
    assert (code, summary["complete"], summary["verdict"]) == (EVIDENCE, False, "stopped")
    first = summary["problems"][0]
    assert "no longer answers" in first["sentence"] and first["stage"] == stage
    assert pq.read_schema(out / "files.parquet").metadata[b"complete"] == b"false"
    assert "PARTIAL: stopped early" in (out / "report.html").read_text()
    # A partial listing is correct, but only a complete one is named bodyfile.txt.
    name = "bodyfile.txt" if stage == "content" else "bodyfile.unfinished.txt"
    lines = (out / name).read_bytes().splitlines()
    assert {line for line in lines if b"|0|0|0|0|0|0|0" not in line and b"/$OrphanFiles/" not in line} <= set(
        by_fls(source)
    )
    assert (len(lines) == len(by_fls(source))) == (stage == "content")
    for row in pq.read_table(out / "files.parquet").to_pylist():
        assert (row["sha256"] is not None) == (row["read_state"] == "whole")
    server.die()
    server.start()
    code, summary = Run(settings, lambda event: None).go()
    assert (code, summary["complete"], summary["problems"]) == (DONE, True, [])
    assert all((out / name).read_bytes() == (undisturbed / name).read_bytes() for name in TABLES)
    assert not (out / "bodyfile.unfinished.txt").exists()


@pytest.mark.parametrize("stage", ["listing", "content"])
def test_a_short_stall_does_not_change_the_result(
    stage: str, server: Server, undisturbed: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    code, summary = Run(Settings(server.uri, str(out)), at(stage, server.pause)).go()
    assert (code, summary["complete"], summary["problems"]) == (DONE, True, [])
    assert all((out / name).read_bytes() == (undisturbed / name).read_bytes() for name in TABLES)
