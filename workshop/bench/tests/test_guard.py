"""The guard's judgement and its history."""

from __future__ import annotations

import pytest

from bench.guard import history
from bench.guard.measure import is_lost
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
    history.add([of([80.0], [100.0])])
    history.add([of([80.0], [100.0]), of([2.0], [4.0], "lower", "start")])
    rows = history.read()
    assert [row["node-read"] for row in rows] == ["0.800", "0.800"]
    assert [row["start"] for row in rows] == ["", "2.000"]
    assert (tmp_path / "guard.svg").read_text().count("<circle") == 2
