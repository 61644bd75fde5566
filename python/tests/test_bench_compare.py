"""`cheetah bench compare`: differences of two runs, and differences that may be chance."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from cheetah.bench import results
from cheetah.bench.cli import main
from cheetah.bench.compare import Relation, compare
from cheetah.bench.figure import Figure
from cheetah.bench.results import Results


def run(samples: dict[str, list[float]], machine: dict[str, str] | None = None, **more: Any) -> Results:
    """A run of storage with one step and these seconds."""
    figure = Figure("storage/copy/cold", "copy, cold", "s", None, samples, "lower", baseline="disk")
    part = {"part": "storage", "title": "Storage", "finished": "", "rounds": 3, "figures": [figure.to_json()], **more}
    return Results(machine or {"kernel": "6.1"}, [], [part])


def verdicts(a: Results, b: Results) -> dict[str, Relation]:
    """Returns the relation of each contender."""
    return {row.contender: row.verdict() for row in compare(a, b).rows}


def test_verdicts_depend_on_the_spread() -> None:
    a = run({"disk": [10, 11, 12], "raid": [10, 11, 12], "ram": [10, 11, 12], "old": [1], "once": [5, 6]})
    b = run({"disk": [5, 6, 5.5], "raid": [11.9, 13, 14], "ram": [13, 12.5, 14], "new": [1], "once": [4]})
    assert verdicts(a, b) == {
        "disk": Relation.FASTER,
        "raid": Relation.SAME,
        "ram": Relation.SLOWER,
        "old": Relation.ONLY_A,
        "once": Relation.ONCE,
        "new": Relation.ONLY_B,
    }
    found = compare(a, b)
    assert any(note.startswith("with so few repetitions, 1 in 10 ") for note in found.sheet().notes)
    many = compare(run({"disk": [1, 2, 3, 4, 5]}), run({"disk": [6, 7, 8, 9, 10]}))
    assert many.rows[0].verdict() is Relation.SLOWER and not many.sheet().notes
    disk = found.rows[0]
    assert disk.times() == pytest.approx(2.0)


def test_higher_is_better_if_the_figure_says_so() -> None:
    def rate(values: list[float], unit: str) -> Results:
        figure = Figure("node/x", "x", unit, "cheetah", {"cheetah": values})
        return Results({}, [], [{"part": "node", "title": "", "finished": "", "figures": [figure.to_json()]}])

    assert verdicts(rate([1, 2], "MiB/s"), rate([3, 4], "MiB/s")) == {"cheetah": Relation.FASTER}
    assert verdicts(rate([1, 2], "%"), rate([3, 4], "%")) == {"cheetah": Relation.BETTER}
    assert verdicts(rate([3, 4], "%"), rate([1, 2], "%")) == {"cheetah": Relation.WORSE}
    nothing = compare(rate([0, 0], "%"), rate([0, 0], "%")).rows[0]
    assert (nothing.verdict(), nothing.times()) == (Relation.SAME, None)


def test_differences_other_than_storage_are_warnings() -> None:
    def made(text: str, target: dict[str, str], **more: Any) -> Results:
        steps = [{"key": "copy", "title": "Copy", "version": text}]
        return run({"disk": [1]}, {"kernel": text}, steps=steps, targets=[{"name": "disk", "about": target}], **more)

    a = made("6.1", {"mount options": "rw", "free bytes": "1"}, settings={"image": "a.raw"})
    b = made("6.2", {"mount options": "rw,noatime", "free bytes": "2"}, quick=True, settings={"image": "b.raw"})
    warnings = compare(a, b).warnings
    for words in ("kernel: 6.1 in A, 6.2 in B", "copy, version", "mount options", "B is a quick run", "image: a.raw"):
        assert any(words in warning for warning in warnings), (words, warnings)
    assert not any("free" in warning for warning in warnings)
    assert compare(a, a).warnings == ()


def test_two_files_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results.write(tmp_path / "a", run({"disk": [10, 11, 12]}))
    results.write(tmp_path / "b", run({"disk": [5, 6, 5.5]}, {"kernel": "6.2"}))
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b" / "results.json")]) == 0
    said = capsys.readouterr().out
    for words in ("storage: copy, cold (s)", "11.0 [10.0 – 12.0]", "2.00 ×", "faster", "note: machine, kernel"):
        assert words in said
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["rows"][0]["verdict"] == "faster"
    assert answer["rows"][0]["a"] == {"median": 11, "lowest": 10, "highest": 12, "rounds": 3}
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "nothing")]) == 1
    assert "nothing" in capsys.readouterr().err


def test_rates_are_shown_in_mib_and_names_are_safe_to_print() -> None:
    figure = Figure("storage/fio", "read\x1b[2J", "bytes/s", None, {"a\nb": [float(3 << 20), float(1 << 20)]})
    found = run({}, figures=[figure.to_json()])
    sheet = compare(found, found).sheet()
    assert sheet.lines[1].cells[:2] == ("2.00 [1.00 – 3.00]",) * 2
    assert all(text.isprintable() for line in sheet.lines for text in (line.label, *line.cells))
    assert "(MiB/s)" in sheet.lines[0].label


def test_an_incomplete_part_is_a_warning() -> None:
    a = run({"disk": [1]})
    b = dataclasses.replace(a, parts=[{**a.parts[0], "problem": "interrupted"}])
    assert compare(a, b).warnings == ("storage: B is incomplete: interrupted",)
