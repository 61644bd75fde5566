"""The custody log of a triage: signed, complete, and compared by `cheetah verify`."""

import gc
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import triage_worker
from conftest import PATIENCE_S
from triage_workers import Alone

from cheetah.error import Error
from cheetah.triage.hub import custody, run
from cheetah.triage.hub.run import Run
from cheetah.triage.hub.stages import Stages
from cheetah.triage.outputs import OUTPUTS
from cheetah.triage.settings import Settings

CASE = (("case_number", "2026/42"), ("evidence_number", "7"), ("examiner", "A. Tester"), ("notes", "<b>found</b>"))


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker, in this process."""
    monkeypatch.setattr(run, "_start_workers", lambda uri, settings: Alone(uri, settings))


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A volume with a file."""
    return triage_worker.fat(tmp_path / "image.raw", {"LETTER.TXT": b"Dear Sir"})


def triaged(image: Path, **settings: Any) -> Path:
    """The folder of a triage of it."""
    out = image.with_name("out")
    Run(Settings(str(image), str(out), case=CASE, **settings), lambda event: None, ("cheetah", "triage")).go()
    return out


def records(out: Path) -> list[dict[str, Any]]:
    """The log."""
    return [json.loads(line) for line in (out / custody.LOG).read_text().splitlines()]


def events(out: Path) -> list[str]:
    """The events in the log, without the checkpoints of the journal."""
    return [record["event"] for record in records(out) if record["event"] != "checkpoint"]


def verified(out: Path, binary: str) -> tuple[int, dict[str, Any]]:
    """What `cheetah verify` says of it."""
    argv = [binary, "--json", "verify", str(out)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return done.returncode, json.loads(done.stdout.splitlines()[0])


def test_the_log_has_the_case_the_source_and_each_file_of_the_result(image: Path) -> None:
    out = triaged(image)
    started, *between, ended = records(out)
    assert (started["event"], ended["event"]) == ("started", "triaged")
    assert "checkpoint" in [record["event"] for record in between]
    assert started["details"]["case"] == dict(CASE)
    assert started["details"]["source"]["size_bytes"] == image.stat().st_size
    assert [output["name"] for output in ended["details"]["outputs"]] == list(OUTPUTS)
    summary = json.loads((out / "summary.json").read_text())
    assert summary["case"] == dict(CASE) and summary["custody"]["log"] == custody.LOG
    page = (out / "report.html").read_text()
    assert "2026/42" in page and "A. Tester" in page and "<b>found</b>" not in page


def test_an_unchanged_result_verifies_and_each_change_is_found(image: Path, binary: str) -> None:
    out = triaged(image)
    code, answer = verified(out, binary)
    assert (code, answer["ok"], answer["problems"]) == (0, True, [])
    assert records(out)[-1]["event"] == "verified"
    for name in OUTPUTS:
        kept = (out / name).read_bytes()
        # Without a finding, the list of MD5s is empty.
        shorter_or_other = (kept[:-1], bytes([kept[0] ^ 1]) + kept[1:]) if kept else ()
        for changed in (kept + b"x", *shorter_or_other):
            (out / name).write_bytes(changed)
            code, answer = verified(out, binary)
            assert (code, answer["ok"]) == (3, False) and name in answer["problems"][0]
        (out / name).unlink()
        assert "missing" in verified(out, binary)[1]["problems"][0]
        (out / name).write_bytes(kept)
    assert verified(out, binary)[0] == 0


def test_a_log_that_was_tampered_with_is_found_and_not_continued(image: Path, binary: str) -> None:
    out = triaged(image)
    log = out / custody.LOG
    log.write_text(log.read_text().replace("2026/42", "2026/43"))
    code, answer = verified(out, binary)
    assert code == 3 and "altered" in answer["problems"][0]
    with pytest.raises(Error):
        triaged(image)


def test_a_log_without_its_end_is_unfinished(image: Path, binary: str) -> None:
    out = triaged(image)
    log = out / custody.LOG
    log.write_text(log.read_text().splitlines(keepends=True)[0])
    code, answer = verified(out, binary)
    assert code == 3 and "unfinished" in " ".join(answer["problems"])


def test_another_run_continues_the_log_and_starting_over_keeps_it(image: Path, binary: str) -> None:
    out = triaged(image)
    triaged(image)
    triaged(image, fresh=True)
    assert events(out) == ["started", "triaged", "resumed", "triaged", "started", "triaged"]
    assert verified(out, binary)[0] == 0


def test_a_result_that_moved_still_verifies(image: Path, tmp_path: Path, binary: str) -> None:
    moved = tmp_path / "elsewhere"
    shutil.move(triaged(image), moved)
    assert verified(moved, binary)[0] == 0


def test_an_interrupted_run_is_recorded_as_stopped(image: Path, monkeypatch: pytest.MonkeyPatch, binary: str) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Stages, "_rank", interrupted)
    out = triaged(image)
    assert events(out) == ["started", "triaged", "stopped"]
    assert not records(out)[-2]["details"]["complete"]
    monkeypatch.undo()
    assert verified(out, binary)[0] == 0


def test_files_without_content_of_their_own_are_no_gap(tmp_path: Path) -> None:
    words = tmp_path / "words"
    words.write_text("Dear\n")
    gone = {f"GONE{number}.TXT": bytes([65 + number]) * 3000 for number in range(8)}
    image = triage_worker.fat(tmp_path / "image.raw", {**gone, "LETTER.TXT": b"Dear Sir"}, delete=tuple(gone))
    # Another file takes the clusters of the deleted ones.
    more = triage_worker.fat(tmp_path / "more.raw", {"LETTER.TXT": b"Dear Sir"})
    assert more.exists()
    out = triaged(image, keywords=(str(words),))
    summary = json.loads((out / "summary.json").read_text())
    assert summary["verdict"] == "whole"
    assert "Done, with gaps" not in (out / "report.html").read_text()


def forged(line: bytes) -> bytes:
    """The line of the journal with another finding: the part that it names has another digest."""
    done = json.loads(line)
    done["bytes_read"] = done.get("bytes_read", 0) + 1
    return json.dumps(done, separators=(",", ":")).encode() + b"\n"


@pytest.mark.parametrize("change", ["altered", "a line less", "a line more", "from another triage"])
def test_a_run_does_not_resume_from_a_journal_that_was_changed(image: Path, change: str) -> None:
    out = triaged(image)
    journal = out / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    other = triage_worker.fat(image.with_name("other.raw"), {"LETTER.TXT": b"Dear Madam"})
    changed = {
        "altered": lambda: [forged(lines[0]), *lines[1:]],
        "a line less": lambda: lines[:-1],
        "a line more": lambda: [*lines, forged(lines[-1])],
        "from another triage": lambda: [triaged_beside(other).read_bytes()],
    }[change]()
    journal.write_bytes(b"".join(changed))
    if change == "a line more":
        # Behind what the log vouches for: the task is done again.
        triaged(image)
        assert journal.read_bytes() == b"".join(lines)
        return
    before = [(out / name).read_bytes() for name in OUTPUTS]
    with pytest.raises(Error, match="vouches for") as refused:
        triaged(image)
    assert refused.value.exit_code == 3
    # The traceback refers to the log, which is locked as long.
    del refused
    gc.collect()
    assert [(out / name).read_bytes() for name in OUTPUTS] == before
    assert events(out)[-3:] == ["resumed", "error", "stopped"]
    triaged(image, fresh=True)
    assert events(out)[-1] == "triaged"


def triaged_beside(image: Path) -> Path:
    """The journal of a triage of another image with the same settings."""
    out = image.with_name("out2")
    Run(Settings(str(image), str(out), case=CASE), lambda event: None, ("cheetah", "triage")).go()
    return out / "journal.jsonl"


def test_a_run_takes_nothing_over_that_another_user_or_no_log_vouches_for(image: Path) -> None:
    out = triaged(image)
    whole = {name: (out / name).read_bytes() for name in OUTPUTS if name.endswith((".txt", ".parquet"))}
    lines = (out / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (out / "journal.jsonl").write_bytes(b"".join([forged(lines[0]), *lines[1:]]))
    (out / custody.LOG).unlink()
    triaged(image)
    assert {name: (out / name).read_bytes() for name in whole} == whole
    assert (out / "journal.jsonl").read_bytes() == b"".join(lines)
