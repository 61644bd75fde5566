"""The command line of `cheetah bench`: arguments, exit codes, and what a run leaves."""

import json
from pathlib import Path
from typing import Any

import pytest

from cheetah.bench import cli, machine, results
from cheetah.bench.cli import main
from cheetah.bench.failure import BenchError, Refused
from cheetah.bench.results import Part, Results

FIGURE = {"id": "x/rate", "what": "rate", "unit": "MiB/s", "ours": "cheetah", "samples": {"cheetah": [1.0]}}


def figures(part: str) -> Part:
    """A part as after a measurement."""
    return {
        "part": part,
        "title": part.upper(),
        "finished": results.now(),
        "figures": [{**FIGURE, "id": f"{part}/rate"}],
    }


class Pretended:
    """Replaces the measurement of storage."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.problem: BaseException | None = None
        self.measured = False
        monkeypatch.setattr(cli, "_measure_storage", self._storage)

    def _storage(self, gathered: Any, settings: Any) -> None:
        self.measured = True
        gathered.add(figures("storage"))
        if self.problem is not None:
            raise self.problem


@pytest.fixture(name="pretended")
def _pretended(monkeypatch: pytest.MonkeyPatch) -> Pretended:
    return Pretended(monkeypatch)


def test_a_run_leaves_its_results_a_table_and_a_report(pretended: Pretended, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["storage", str(tmp_path), "--quick", "--out", str(out)]
    assert main(words) == 0
    found = results.read(out)
    assert [part["part"] for part in found.parts] == ["storage"] and found.machine["kernel"]
    assert found.command == ["cheetah", "bench", *words]
    assert (out / "report.html").is_file() and (out / "results.csv").is_file()


@pytest.mark.parametrize(("problem", "code"), [(BenchError("no room"), 1), (Refused("there is a custody log"), 3)])
def test_a_problem_decides_the_exit_code(
    pretended: Pretended, tmp_path: Path, problem: BenchError, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    pretended.problem = problem
    assert main(["storage", str(tmp_path), "--out", str(tmp_path / "out")]) == code
    assert str(problem) in capsys.readouterr().err


def test_an_interrupted_run_keeps_its_results(pretended: Pretended, tmp_path: Path) -> None:
    pretended.problem = KeyboardInterrupt()
    assert main(["storage", str(tmp_path), "--out", str(tmp_path / "out")]) == 1
    assert (tmp_path / "out/report.html").is_file()


def test_an_unknown_part_lists_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["foo"]) == 2
    said = capsys.readouterr().err
    assert "there is no part 'foo'; there are storage, compare, report" in said and "make bench" in said


def test_results_of_another_machine_are_not_overwritten(
    pretended: Pretended, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results.write(tmp_path, Results({**machine.describe(), "kernel": "2.6.27"}, ["x"], [figures("node")]))
    before = (tmp_path / "results.json").read_bytes()
    assert main(["storage", str(tmp_path), "--out", str(tmp_path)]) == 2
    assert "another machine (kernel: 2.6.27" in capsys.readouterr().err
    assert (tmp_path / "results.json").read_bytes() == before and not pretended.measured


def test_a_report_is_rendered_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results.write(tmp_path, Results(machine.describe(), ["x"], [figures("node")]))
    before = (tmp_path / "results.json").read_bytes()
    (tmp_path / "results.csv").unlink()
    assert main(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "report.html")
    assert (tmp_path / "report.html").is_file() and (tmp_path / "results.csv").is_file()
    assert (tmp_path / "results.json").read_bytes() == before


@pytest.mark.parametrize("words", [[], ["--fast"], ["-x"]])
def test_an_invalid_command_is_misuse(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert "cheetah bench storage TARGET" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["storage", ".", "--quick", "--full"], ["storage", ".", "--rounds", "3"], ["compare", "a"], ["report"]]
)
def test_invalid_arguments_end_the_process(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2


def test_help_prints_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "compare A.json B.json" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["storage", "--help"])
    assert ended.value.code == 0 and "--repetitions N" in capsys.readouterr().out


def test_an_error_is_json_with_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path), "--json"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["exit_code"] == 1
    assert captured.err.startswith("error: ") and "Traceback" not in captured.err


def test_errors_contain_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    """The usage keeps its indentation."""
    assert main(["storage", "no\x1b[2J"]) == 2
    said = capsys.readouterr().err
    assert "\x1b" not in said and "no⟨U+001B⟩[2J: there is no such directory" in said
    assert main([]) == 2
    assert "\n       cheetah bench compare" in capsys.readouterr().err
