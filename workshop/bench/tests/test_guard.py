"""The guard's judgement and its history."""

from __future__ import annotations

import hashlib

import pytest

from bench.guard import builds, history
from bench.guard.builds import Build
from bench.guard.measure import is_lost
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure


def of(ours: list[float], theirs: list[float], better: str = "higher", key: str = "node-read") -> Figure:
    return Figure(f"guard/{key}", key, "MiB/s", "this build", {"this build": ours, "earlier": theirs}, better)


@pytest.mark.parametrize("better", ["higher", "lower"])
def test_a_loss_beyond_the_spread_of_both_builds_fails(better) -> None:
    slow, fast = [80.0, 81, 82, 83, 84], [90.0, 91, 92, 93, 94]
    ours, theirs = (slow, fast) if better == "higher" else (fast, slow)
    assert is_lost(of(ours, theirs, better))
    assert not is_lost(of(theirs, ours, better)), "a gain is no loss"


def test_a_loss_within_the_spread_does_not_fail() -> None:
    assert not is_lost(of([80.0, 81, 82, 83, 91], [90.0, 91, 92, 93, 94]))


def test_a_loss_of_a_percent_does_not_fail_however_small_the_spread() -> None:
    assert not is_lost(of([99.0, 99, 99, 99, 99], [100.0, 100, 100, 100, 100]))


def test_too_few_rounds_prove_nothing() -> None:
    assert not is_lost(of([50.0], [100.0]))


def test_each_run_is_a_row_of_the_history_and_a_point_of_the_plot(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(history, "TABLE", str(tmp_path / "history.tsv"))
    monkeypatch.setattr(history, "PLOT", str(tmp_path / "guard.svg"))
    monkeypatch.setattr(history.versions, "describe", lambda: {"processor": "a processor"})
    history.add([of([80.0], [100.0])], Build("earlier", "/program", "1f2e3d"), 360.4)
    history.add(
        [of([80.0], [100.0]), of([2.0], [4.0], "lower", "start")], Build("earlier", "/program", "v1.0.0"), 359.5
    )
    rows = history.read()
    assert [(row["before"], row["seconds"]) for row in rows] == [("1f2e3d", "360"), ("v1.0.0", "360")]
    assert [row["node-read"] for row in rows] == ["0.800", "0.800"]
    assert [row["start"] for row in rows] == ["", "2.000"]
    assert (tmp_path / "guard.svg").read_text().count("<circle") == 2


def test_a_run_from_before_the_columns_of_the_earlier_build_stays_in_the_history(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(history, "TABLE", str(tmp_path / "history.tsv"))
    monkeypatch.setattr(history, "PLOT", str(tmp_path / "guard.svg"))
    monkeypatch.setattr(history.versions, "describe", lambda: {"processor": "a processor"})
    (tmp_path / "history.tsv").write_text("date\tcommit\tprocessor\tnode-read\n2026-01-02\t1f\tone\t0.900\n")
    history.add([of([80.0], [100.0])], Build("earlier", "/program", "1f"), 1.0)
    assert [(row["before"], row["node-read"]) for row in history.read()] == [("", "0.900"), ("1f", "0.800")]


def test_the_table_names_the_build_that_was_compared_with() -> None:
    heads = history.table([of([80.0], [100.0])], Build("earlier", "/program", "1f2e3d")).splitlines()[0]
    assert "earlier, 1f2e3d" in heads


def test_an_earlier_program_is_named_by_its_digest(tmp_path) -> None:
    program = tmp_path / "cheetah"
    program.write_bytes(b"program")
    program.chmod(0o755)
    assert builds.earlier(str(program)).source == "sha256:" + hashlib.sha256(b"program").hexdigest()[:12]


def test_without_a_release_the_guard_says_how_to_name_the_earlier_build(monkeypatch) -> None:
    monkeypatch.setattr(builds, "_git", lambda *words: "")
    with pytest.raises(BenchError, match="--before"):
        builds.earlier(None)
