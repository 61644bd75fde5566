"""`cheetah run`: any program, on each part of a source, on this machine and on a Dask cluster."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import PATIENCE_S
from test_triage_cluster import Cluster

from cheetah.run.cli import divided
from cheetah.run.hub import Hub, Misuse, Outcome
from cheetah.run.parts import ALIGNMENT_BYTES, PARTS_MAX, Part, divide, words
from cheetah.run.source import Source
from cheetah.run.workers import Cluster as DaskWorkers
from cheetah.run.workers import Here

SIZE_BYTES = 5 * ALIGNMENT_BYTES + 1234
# Hashes the part into a file, and prints its number.
HASH = 'head -c "$2" "$0" | tail -c +$(($1 + 1)) | sha256sum >hash; echo "part $3"'
COMMAND = ("sh", "-c", HASH, "{image}", "{begin}", "{end}", "{number}")


@pytest.fixture
def image(tmp_path: Path, binary: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An image, on a machine that can mount it."""
    if not os.path.exists("/dev/fuse") or not shutil.which("setpriv"):
        pytest.skip("needs FUSE and setpriv")
    monkeypatch.setenv("CHEETAH_BINARY", binary)
    path = tmp_path / "disk.raw"
    path.write_bytes(os.urandom(SIZE_BYTES))
    return path


@pytest.fixture
def cluster(tmp_path: Path, image: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A scheduler, without workers yet."""
    pytest.importorskip("distributed")
    monkeypatch.setattr("cheetah.triage.workers.cluster.CONNECT_S", PATIENCE_S)
    folder = tmp_path / "cluster"
    folder.mkdir()
    made = Cluster(folder)
    yield made
    made.end()


def hub(image: Path, command: tuple[str, ...], out: Path, parts: int) -> Hub:
    """A run of a program on the image."""
    content = image.read_bytes()
    source = Source.of(str(image), len(content), lambda offset, length: content[offset : offset + length])
    return Hub(source, command, str(out), parts)


SIZES = (0, 1, 511, ALIGNMENT_BYTES - 1, ALIGNMENT_BYTES, SIZE_BYTES, 10**9 + 7, 10**13 + 1)


@pytest.mark.parametrize("size_bytes", SIZES)
@pytest.mark.parametrize("count", (1, 2, 3, 7, 64, PARTS_MAX))
def test_parts_cover_a_source_exactly_and_begin_at_whole_mebibytes(size_bytes: int, count: int) -> None:
    parts = divide(size_bytes, count)
    assert 1 <= len(parts) <= count
    assert (parts[0].begin, parts[-1].end) == (0, size_bytes)
    assert all(before.end == after.begin for before, after in itertools.pairwise(parts))
    assert all(part.begin % ALIGNMENT_BYTES == 0 for part in parts)
    assert all(part.begin < part.end for part in parts) or size_bytes == 0
    assert [part.number for part in parts] == list(range(1, len(parts) + 1))


def test_names_in_braces_are_replaced_once_and_other_braces_stay() -> None:
    part = Part(3, 10, 30)
    asked = ["{begin}-{end}", "{image}{length}", "{x}{number", "{{number}}", "$(awk '{print}')", "}{"]
    expected = ["10-30", "/m/{end}20", "{x}{number", "{3}", "$(awk '{print}')", "}{"]
    assert words(asked, part, "/m/{end}") == expected


def test_the_program_begins_behind_the_first_separator() -> None:
    assert divided(["a", "--out", "b", "--", "sh", "--", "--json"]) == (["a", "--out", "b"], ["sh", "--", "--json"])
    assert divided(["a"]) == (["a"], [])


def checked(image: Path, out: Path, outcomes: list[Outcome]) -> None:
    """Compares the results of `COMMAND` with the image."""
    content = image.read_bytes()
    for outcome in outcomes:
        assert (outcome.exit_code, outcome.problem) == (0, "")
        folder = out / f"part-{outcome.number:04}"
        digest = hashlib.sha256(content[outcome.begin : outcome.end]).hexdigest()
        assert (folder / "out/hash").read_text().split()[0] == digest
        assert (folder / "stdout").read_text() == f"part {outcome.number}\n"
    assert outcomes[-1].end == SIZE_BYTES


def test_a_program_runs_on_each_part_here_and_the_same_command_has_nothing_left_to_do(
    image: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    seen: list[int] = []
    for again in range(2):
        run = hub(image, COMMAND, out, 4)
        checked(image, out, run.go(Here(2), lambda outcome: seen.append(outcome.number)))
        assert sorted(seen) == [1, 2, 3, 4], again
    record = json.loads((out / "run.json").read_bytes())
    assert (record["source"], record["parts"], len(record["outcomes"])) == (str(image), 4, 4)
    assert not [name for name in os.listdir(out) if name.startswith(".")]
    with pytest.raises(Misuse, match="another run"):
        hub(image, ("true",), out, 4)


def test_parts_that_fail_are_run_again_by_the_same_command(image: Path, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    command = ("sh", "-c", 'echo wrong >&2; test "$1" -ne 2 || test -e "$0"', str(flag), "{number}")
    out = tmp_path / "out"
    seen: list[int] = []
    first = hub(image, command, out, 3).go(Here(1), lambda outcome: None)
    assert [outcome.exit_code for outcome in first] == [0, 1, 0]
    assert (out / "part-0002/stderr").read_text() == "wrong\n"
    flag.touch()
    second = hub(image, command, out, 3).go(Here(1), lambda outcome: seen.append(outcome.number))
    assert [outcome.exit_code for outcome in second] == [0, 0, 0]
    assert seen == [2]


def test_a_cluster_gives_the_same_results(image: Path, cluster: Cluster, tmp_path: Path) -> None:
    for _ in range(2):
        cluster.worker()
    out = tmp_path / "out"
    run = hub(image, COMMAND, out, 5)
    checked(image, out, run.go(DaskWorkers(cluster.address), lambda outcome: None))


def verb(binary: str, *arguments: object, **environment: str) -> subprocess.Popen[str]:
    """Starts the verb."""
    kept = os.environ | {"CHEETAH_PYTHON": sys.executable} | environment
    argv = [binary, *map(str, arguments)]
    return subprocess.Popen(argv, env=kept, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_the_verb_says_how_each_part_ended_and_fails_if_one_did(image: Path, binary: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ended = verb(binary, "--json", "run", image, "--out", out, "--parts", 2, "--", "sh", "-c", 'exit "$0"', "{number}")
    printed, complaint = ended.communicate(timeout=PATIENCE_S)
    lines = [json.loads(line) for line in printed.splitlines()]
    assert {(line["number"], line["exit_code"]) for line in lines if line.get("event") == "part"} == {(1, 1), (2, 2)}
    assert lines[-2] == {"out": str(out), "parts": 2, "failed": [1, 2]}
    assert (lines[-1]["exit_code"], lines[-1]["kind"]) == (1, "failed")
    assert ended.returncode == 1 and "2 of 2 parts failed (1, 2)" in complaint
    assert "2 of 2 parts failed (1, 2)" in lines[-1]["error"]
    for asked in (["run", image, "--out", out], ["run", image, "--", "true"]):
        refused = verb(binary, *asked)
        refused.communicate(timeout=PATIENCE_S)
        assert refused.returncode == 2


def test_an_interrupted_run_ends_its_programs_and_mounts(image: Path, binary: str, tmp_path: Path) -> None:
    started = tmp_path / "started"
    command = ["sh", "-c", 'touch "$0"; sleep 1000', started]
    folder = tmp_path / "temporary"
    folder.mkdir()
    running = verb(binary, "run", image, "--out", tmp_path / "out", "--parts", 1, "--", *command, TMPDIR=str(folder))
    until = time.monotonic() + PATIENCE_S
    while not started.exists():
        assert running.poll() is None and time.monotonic() < until
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    _, complaint = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 1 and "the same command runs what is missing" in complaint
    assert list(folder.iterdir()) == []
    with open("/proc/mounts", encoding="utf-8") as mounts:
        assert str(folder) not in mounts.read()


def test_a_python_without_dask_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "cheetah.triage.workers.cluster", raising=False)
    monkeypatch.setitem(sys.modules, "dask", None)  # type: ignore[arg-type]
    with pytest.raises(OSError, match="needs Dask, and this Python has no dask.*; install it"):
        DaskWorkers("tcp://127.0.0.1:1")
