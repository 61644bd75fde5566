"""The command line of `cheetah bench`: arguments, exit codes, and one report of everything."""

import json
from pathlib import Path
from typing import Any

import pytest

from cheetah.bench import checkout, cli, machine, results
from cheetah.bench.checkout import Checkout, Choice
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
    """Replaces measurements: each part behaves as the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.problems: dict[str, BaseException] = {}
        self.measured: list[str] = []
        self.targets: list[str] = []
        self.choice = Choice()
        monkeypatch.setattr(Checkout, "parts", lambda _: {key: {"part": key, "title": key} for key in self.keys()})
        monkeypatch.setattr(Checkout, "measure", self._measure)
        monkeypatch.setattr(checkout, "find", lambda sources: sources or Path("/sources"))
        monkeypatch.setattr(cli, "_measure_storage", self._storage)

    @staticmethod
    def keys() -> tuple[str, ...]:
        return ("node", "storage", "drive", "acquire")

    def _do(self, part: str) -> Part:
        self.measured.append(part)
        if part in self.problems:
            raise self.problems[part]
        return figures(part)

    def _measure(self, part: Part, choice: Choice, progress: Any) -> tuple[Part, dict[str, str]]:
        self.choice = choice
        return self._do(part["part"]), {"fio": "fio-3"}

    def _storage(self, gathered: Any, settings: Any) -> None:
        self.targets = [target.name for target in settings.targets]
        gathered.add(self._do("storage"))


@pytest.fixture(name="pretended")
def _pretended(monkeypatch: pytest.MonkeyPatch) -> Pretended:
    return Pretended(monkeypatch)


def problems(out: Path) -> dict[str, str]:
    """Returns the problem of each part in the results."""
    return {part["part"]: part.get("problem", "") for part in results.read(out).parts}


def test_all_measures_storage_and_every_part_in_one_report(pretended: Pretended, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["--all", str(tmp_path), "--quick", "--rounds", "2", "--out", str(out)]
    assert main(words) == 0
    assert pretended.measured == ["storage", "node", "drive", "acquire"]
    assert pretended.choice == Choice(quick=True, rounds=2)
    found = results.read(out)
    assert [part["part"] for part in found.parts] == pretended.measured
    assert found.machine["fio"] == "fio-3" and found.machine["kernel"]
    assert found.command == ["cheetah", "bench", *words]
    assert (out / "report.html").is_file() and (out / "results.csv").is_file()


def test_all_without_a_target_has_two_default_targets(
    pretended: Pretended, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["--all", "--out", str(tmp_path / "out")]) == 0
    assert len(pretended.targets) == 2 and "ram" in pretended.targets[1]


def test_a_failing_part_does_not_stop_the_others(
    pretended: Pretended, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pretended.problems = {"storage": BenchError("no room"), "drive": BenchError("fio is not installed")}
    assert main(["--all", str(tmp_path), "--out", str(tmp_path / "out"), "--json"]) == 1
    assert pretended.measured == ["storage", "node", "drive", "acquire"]
    assert problems(tmp_path / "out") == {
        "storage": "no room",
        "node": "",
        "drive": "fio is not installed",
        "acquire": "",
    }
    answer = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert answer["exit_code"] == 1
    assert [part["problem"] for part in answer["parts"]] == ["no room", "", "fio is not installed", ""]


def test_evidence_decides_the_exit_code(pretended: Pretended, tmp_path: Path) -> None:
    pretended.problems = {"storage": Refused("there is a custody log"), "drive": BenchError("x")}
    assert main(["--all", str(tmp_path), "--out", str(tmp_path / "out")]) == 3
    assert pretended.measured[-1] == "acquire"


def test_results_are_not_written_near_evidence(
    pretended: Pretended, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "case.raw.custody").touch()
    words = ["node", "--out", str(tmp_path / "out")]
    assert main(words) == 3
    assert "case.raw.custody" in capsys.readouterr().err and not pretended.measured
    assert main([*words, "--beside-evidence"]) == 0
    assert pretended.measured == ["node"]


def test_an_unknown_part_is_refused_before_evidence_is_looked_for(
    pretended: Pretended, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "case.raw.custody").touch()
    assert main(["foo", "--out", str(tmp_path / "out")]) == 2
    assert "there is no part 'foo'; there are storage, compare, report, node" in capsys.readouterr().err
    assert main(["trasnfer", "--out", str(tmp_path / "out")]) == 2
    assert "a similar part exists: 'transfer'" in capsys.readouterr().err


def test_an_interrupted_run_of_all_keeps_its_results(pretended: Pretended, tmp_path: Path) -> None:
    pretended.problems = {"node": KeyboardInterrupt()}
    assert main(["--all", str(tmp_path), "--out", str(tmp_path / "out")]) == 1
    assert pretended.measured == ["storage", "node"]
    later = "interrupted before its turn"
    assert problems(tmp_path / "out") == {"storage": "", "node": "interrupted", "drive": later, "acquire": later}
    assert (tmp_path / "out/report.html").is_file()


def test_without_a_checkout_storage_is_still_measured(
    pretended: Pretended, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(_: object) -> Path:
        raise BenchError("needs a checkout")

    with monkeypatch.context() as patch:
        patch.setattr(checkout, "find", none)
        assert main(["--all", str(tmp_path), "--out", str(tmp_path / "out")]) == 1
    assert problems(tmp_path / "out") == {"storage": "", "sources": "needs a checkout"}
    # Next time there is one.
    assert main(["--all", str(tmp_path), "--out", str(tmp_path / "out")]) == 0
    assert "sources" not in problems(tmp_path / "out")


def test_results_of_another_machine_are_not_overwritten(
    pretended: Pretended, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results.write(tmp_path, Results({**machine.describe(), "kernel": "2.6.27"}, ["x"], [figures("node")]))
    before = (tmp_path / "results.json").read_bytes()
    assert main(["drive", "--out", str(tmp_path)]) == 2
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
    "words", [["node", "--rounds", "0"], ["node", "--quick", "--full"], ["node", "more"], ["compare", "a"], ["report"]]
)
def test_invalid_arguments_end_the_process(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2


def test_help_prints_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "compare A.json B.json" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["node", "--help"])
    assert ended.value.code == 0 and "--rounds N" in capsys.readouterr().out


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
    assert "\n       cheetah bench PART" in capsys.readouterr().err
