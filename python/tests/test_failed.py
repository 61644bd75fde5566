"""A verb that fails prints JSON of docs/reference/json/failed.json last, as the verbs in Rust do."""

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import PATIENCE_S, ROOT

import cheetah
from cheetah import options
from cheetah.bench.gather import ResultCollector
from cheetah.triage import cli as triage


def valid(line: str) -> dict[str, Any]:
    """An answer, after a check that it is one of a command that failed."""
    jsonschema = pytest.importorskip("jsonschema")
    answer: dict[str, Any] = json.loads(line)
    schema = json.loads((ROOT / "docs/reference/json/failed.json").read_text())
    jsonschema.validate(answer, schema)
    assert set(answer) <= set(schema["properties"])
    return answer


@pytest.mark.parametrize(
    ("words", "code", "kind"),
    [
        (["triage", "disk.raw", "--out", "out", "--quik"], 2, "misuse"),
        (["triage", "disk.raw", "--out", "out", "--keywords", "missing"], 2, "misuse"),
        (["triage", "missing.raw", "--out", "out"], 1, "failed"),
        (["triage", "broken.E01", "--out", "out"], 3, "evidence"),
        (["run", "disk.raw", "--out", "out"], 2, "misuse"),
        (["run", "gopher://host/disk", "--out", "out", "--", "true"], 2, "misuse"),
        (["run", "missing.raw", "--out", "out", "--", "true"], 1, "failed"),
        (["run", "broken.E01", "--out", "out", "--", "true"], 3, "evidence"),
        (["bench", "stroage", "."], 2, "misuse"),
        (["bench", "storage", ".", "--quik"], 2, "misuse"),
        (["bench", "report", "missing"], 1, "failed"),
    ],
)
def test_a_verb_that_fails_says_the_kind_and_the_exit_code(
    tmp_path: Path, words: list[str], code: int, kind: str
) -> None:
    (tmp_path / "disk.raw").write_bytes(bytes(1 << 20))
    (tmp_path / "broken.E01").write_bytes(b"not an E01")
    argv = [sys.executable, "-m", f"cheetah.{words[0]}", "--json", *words[1:]]
    if words[0] == "bench":
        argv = [*argv[:3], *words[1:], "--json"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    answer = valid(done.stdout.splitlines()[-1])
    assert (done.returncode, answer["exit_code"], answer["kind"]) == (code, code, kind)
    assert done.stderr.startswith("error: ") and "Traceback" not in done.stderr


def test_the_next_steps_of_an_error_are_part_of_the_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "disk.raw.partial").write_bytes(bytes(1 << 20))
    with pytest.raises(cheetah.Error) as caught:
        cheetah.open(tmp_path / "disk.raw.partial")
    step = {"step": "finish_or_acquire_anew"}
    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        assert (error.next, error.steps) == ((step,), (step["step"],))
        options.answer(str(error), error.exit_code, error)
        assert valid(capsys.readouterr().out)["next"] == [step]


def test_a_step_that_is_about_something_is_printed_whole(capsys: pytest.CaptureFixture[str]) -> None:
    step = {"step": "unmount", "dir": "/mnt/case"}
    error = cheetah.Error("it is mounted", 1, kind="lost", next=[json.dumps(step)])
    options.answer(str(error), error.exit_code, error)
    answer = valid(capsys.readouterr().out)
    assert (answer["kind"], answer["next"]) == ("lost", [step])
    assert (error.next, error.steps) == ((step,), ("unmount",))


def test_a_benchmark_that_is_incomplete_says_so_after_its_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gathered = ResultCollector(tmp_path, ["cheetah", "bench"], {"kernel": "6"})
    gathered.add({"part": "storage", "title": "Storage", "figures": [], "problem": "there is no space"}, code=1)
    assert gathered.finish(as_json=True) == 1
    done, failed = capsys.readouterr().out.splitlines()
    assert json.loads(done)["event"] == "done"
    assert valid(failed)["error"] == "storage: there is no space"


@pytest.mark.parametrize(
    ("code", "complete", "kind"), [(1, False, "failed"), (3, False, "evidence"), (3, True, "evidence")]
)
def test_a_triage_that_is_incomplete_says_so_after_its_summary(
    code: int, complete: bool, kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = {"complete": complete, "problems": [{"sentence": "the node does not answer"}]}

    class Pretended:
        def __init__(self, *_: object) -> None:
            pass

        def go(self) -> tuple[int, dict[str, Any]]:
            return code, summary

    monkeypatch.setattr("cheetah.triage.hub.run.Run", Pretended)
    words = ["disk.raw", "--out", "out", "--json"]
    assert triage._triage(triage.parse(words), words, lambda: pytest.fail("it is opened")) == code
    shown, failed = capsys.readouterr().out.splitlines()
    assert json.loads(shown) == summary
    assert (valid(failed)["exit_code"], valid(failed)["kind"]) == (code, kind)
