"""A triage from its command to its tables: always the same result."""

import contextlib
import hashlib
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import triage_images
from conftest import PATIENCE_S, program, run
from triage_listing import by_fls

from cheetah.path_text import to_text
from cheetah.triage.hub.closing import DONE, FAILED
from cheetah.triage.hub.folder import Misuse
from cheetah.triage.hub.run import Run
from cheetah.triage.settings import Settings
from cheetah.triage.tables import timeline
from cheetah.triage.task import Event

TABLES = ("bodyfile.txt", "files.parquet", "timeline.parquet", "findings.parquet", "notable.csv", "notable-md5.txt")


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ext4 volume with some hundred files."""
    return triage_images.ext4(tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="module")
def keywords(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A word that is in the image."""
    path = tmp_path_factory.mktemp("words") / "words.txt"
    path.write_text("bottom\nProgramme\n")
    return path


@pytest.fixture(scope="module")
def undisturbed(image: Path, keywords: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The result of an undisturbed run."""
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    code, summary = triage(image, out, keywords)
    assert (code, summary["complete"], summary["problems"]) == (DONE, True, [])
    return out


def triage(
    image: Path, out: Path, keywords: Path, tell: Callable[[Event], None] = lambda event: None, **more: Any
) -> tuple[int, dict[str, Any]]:
    """A run in this process, by default with two workers."""
    settings = {"workers": 2, "keywords": (str(keywords),), **more}
    return Run(Settings(str(image), str(out), **settings), tell).go()


def same(out: Path, other: Path) -> bool:
    """Whether two results are the same, byte for byte."""
    return all((out / name).read_bytes() == (other / name).read_bytes() for name in TABLES)


def test_the_tables_agree_with_the_sleuth_kit(image: Path, undisturbed: Path) -> None:
    assert (undisturbed / "bodyfile.txt").read_bytes().splitlines() == by_fls(image)
    rows = pq.read_table(undisturbed / "files.parquet").to_pylist()
    assert len(rows) == len(by_fls(image))
    files = [row for row in rows if row["kind"] == "r" and not row["deleted"]]
    assert len(files) > 40
    for row in random.Random(1).sample(files, 12):
        content = subprocess.run(
            [program("icat"), str(image), row["address"]], capture_output=True, timeout=PATIENCE_S, check=True
        ).stdout
        assert (row["sha256"], row["md5"]) == (hashlib.sha256(content).hexdigest(), hashlib.md5(content).hexdigest())
        assert (row["size"], row["read_state"]) == (len(content), "whole")
    found = pq.read_table(undisturbed / "findings.parquet").to_pylist()
    assert any(row["kind"] == "keyword" and (row["path"] or "").endswith("/bottom.txt") for row in found)
    summary = json.loads((undisturbed / "summary.json").read_text())
    assert summary["counts"]["files"] == sum(row["kind"] == "r" for row in rows)
    assert (undisturbed / "report.html").exists()


def test_the_number_of_workers_does_not_change_the_result(
    image: Path, keywords: Path, undisturbed: Path, tmp_path: Path
) -> None:
    assert triage(image, tmp_path / "out", keywords, workers=1)[0] == DONE
    assert same(tmp_path / "out", undisturbed)


def test_a_killed_worker_does_not_change_the_result(
    image: Path, keywords: Path, undisturbed: Path, tmp_path: Path
) -> None:
    killed: set[str] = set()

    def tell(event: Event) -> None:
        if event.stage in ("listing", "content") and event.stage not in killed:
            killed.add(event.stage)
            multiprocessing.active_children()[0].kill()

    assert triage(image, tmp_path / "out", keywords, tell)[0] == DONE
    assert killed == {"listing", "content"}
    assert same(tmp_path / "out", undisturbed)


@pytest.mark.parametrize("stage", ["listing", "content"])
def test_an_interrupted_run_leaves_a_partial_result_and_resumes(
    stage: str, image: Path, keywords: Path, undisturbed: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"

    def tell(event: Event) -> None:
        if event.stage == stage:
            raise KeyboardInterrupt

    code, summary = triage(image, out, keywords, tell)
    assert (code, summary["complete"], summary["verdict"]) == (FAILED, False, "stopped")
    assert (out / "report.html").exists()
    assert pq.read_schema(out / "files.parquet").metadata[b"complete"] == b"false"
    assert (out / "bodyfile.txt").exists() == (stage != "listing")
    progress = summary["coverage"]["stages"][stage]
    assert progress["done"] < progress["total"]
    assert triage(image, out, keywords)[0] == DONE
    assert same(out, undisturbed)
    assert not (out / "bodyfile.unfinished.txt").exists()


def test_a_run_killed_at_random_resumes(image: Path, keywords: Path, undisturbed: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    argv = [
        sys.executable,
        "-m",
        "cheetah.triage",
        str(image),
        "--out",
        str(out),
        "--keywords",
        str(keywords),
        "--workers",
        "2",
    ]
    chance = random.Random(os.getpid())
    for _ in range(2):
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        time.sleep(chance.uniform(0.3, 2.5))
        process.kill()
        process.wait(PATIENCE_S)
    run(*argv)
    assert same(out, undisturbed)


def test_ctrl_c_says_how_to_resume(image: Path, tmp_path: Path) -> None:
    code, errors = DONE, b""
    # On a machine that stalls, the run may end before the signal.
    for attempt in range(20):
        out = tmp_path / f"out{attempt}"
        argv = [sys.executable, "-m", "cheetah.triage", str(image), "--out", str(out), "--json"]
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
        while not (out / "journal.jsonl").exists() and process.poll() is None:
            time.sleep(0.01)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_S)
        code = process.returncode
        if code != DONE:
            break
    assert code == FAILED
    assert b"the same command resumes the run" in errors


def test_another_source_or_other_settings_are_refused(
    image: Path, keywords: Path, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other.raw"
    other.write_bytes(bytes(1 << 20))
    before = (undisturbed / "summary.json").read_bytes()
    with pytest.raises(Misuse, match="another source"):
        triage(other, undisturbed, keywords)
    with pytest.raises(Misuse, match="other settings .hashes."):
        triage(image, undisturbed, keywords, hashes=("md5",))
    changed = tmp_path / image.name
    content = bytearray(image.read_bytes())
    third = len(content) // 3
    content[third : third + (1 << 20)] = b"\1" * (1 << 20)
    changed.write_bytes(content)
    with pytest.raises(Misuse, match="changed since"):
        triage(changed, undisturbed, keywords)
    with monkeypatch.context() as patch:
        patch.setattr("cheetah.triage.hub.run.deciding", lambda: {"yara-x": "0.1"})
        with pytest.raises(Misuse, match="other settings .versions."):
            triage(image, undisturbed, keywords)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/letter.txt").write_text("mine")
    with pytest.raises(Misuse, match="not empty"):
        triage(image, tmp_path / "taken", keywords)
    assert (undisturbed / "summary.json").read_bytes() == before


def test_a_damaged_part_is_computed_again(image: Path, keywords: Path, undisturbed: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert triage(image, out, keywords)[0] == DONE
    parts = sorted((out / "parts").glob("*.rows.arrow"))
    parts[0].write_bytes(parts[0].read_bytes()[:-10])
    parts[1].unlink()
    with open(out / "journal.jsonl", "ab") as journal:
        journal.write(b'{"id": "cut sho')
    assert triage(image, out, keywords)[0] == DONE
    assert same(out, undisturbed)


def test_a_quick_look_lists_all_and_reads_the_best(
    image: Path, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cheetah.triage.hub.plan.QUICK_FILES", 10)
    code, summary = Run(Settings(str(image), str(tmp_path / "out"), quick=True, workers=1), lambda event: None).go()
    assert (code, summary["verdict"]) == (DONE, "quick")
    assert (tmp_path / "out/bodyfile.txt").read_bytes() == (undisturbed / "bodyfile.txt").read_bytes()
    states = pq.read_table(tmp_path / "out/files.parquet").column("read_state").to_pylist()
    assert states.count("whole") == 10
    assert states.count("unread") > 30


@pytest.mark.parametrize("part_lines", [timeline.PART_LINES, 100])
def test_progress_of_ranking_and_merging_is_in_rows(
    image: Path, keywords: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part_lines: int
) -> None:
    monkeypatch.setattr("cheetah.triage.hub.stage_progress.TELL_S", 0)
    monkeypatch.setattr(timeline, "PART_LINES", part_lines)
    events_seen: list[Event] = []
    triage(image, tmp_path / "out", keywords, events_seen.append, quick=True)
    rows = pq.read_metadata(tmp_path / "out/files.parquet").num_rows
    for stage in ("ranking", "merging"):
        events = [event for event in events_seen if event.stage == stage]
        done = [event.done for event in events]
        assert done[0] == 0 and done[-1] == rows and done == sorted(done) and len(set(done)) > 3
        assert {(event.total, event.unit) for event in events} == {(rows, "rows")}


def test_fresh_discards_the_earlier_result(image: Path, keywords: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    triage(image, out, keywords, quick=True)
    code, _ = triage(image, out, keywords, hashes=("md5",), fresh=True)
    assert code == DONE
    assert set(pq.read_table(out / "files.parquet").column("sha1").to_pylist()) == {None}


def test_a_mistyped_source_leaves_the_directory_usable(image: Path, keywords: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(OSError, match="no-such-image"):
        triage(tmp_path / "no-such-image.raw", out, keywords)
    assert triage(image, out, keywords)[0] == DONE


def test_names_that_are_not_utf8_are_triaged_and_reported_as_text(image: Path, keywords: Path, tmp_path: Path) -> None:
    source, words, out = (tmp_path / os.fsdecode(name) for name in (b"caf\xe9.img", b"words\xe9", b"out\xe9"))
    source.write_bytes(image.read_bytes())
    words.write_bytes(keywords.read_bytes())
    command = [sys.executable, "-m", "cheetah.triage", source, "--out", out, "--keywords", words, "--workers", "1"]
    told = subprocess.run(command, timeout=PATIENCE_S, capture_output=True, check=True)
    assert told.stdout.decode().strip() == to_text(out / "report.html")
    summary = json.loads((out / "summary.json").read_bytes())
    assert summary["source"]["uri"] == to_text(source)
    assert summary["source"]["name"] == "bytes:caf%E9.img"
    assert summary["settings"]["keywords"] == [to_text(words)]
    assert to_text(source) in summary["command"]
    assert "caf%E9.img" in (out / "report.html").read_bytes().decode()
    # The commands in the report can be typed.
    again = [to_text(path) for path in (source, out, words)]
    command = [*command[:3], again[0], "--out", again[1], "--keywords", again[2], "--workers", "1", "--json"]
    told = subprocess.run(command, timeout=PATIENCE_S, capture_output=True, check=True)
    assert json.loads(told.stdout.splitlines()[-1])["complete"]
