"""Rounds that are kept: a measurement goes on where it was cut off."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench.harness import rounds
from bench.harness.journal import Journal
from bench.harness.rounds import OutOfTime, fewest, interleave, kept_in, while_time_lasts
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure

CONDITIONS = {"part": "node", "program": "1f"}


class Contenders:
    """Two contenders with results 0, 1, 2, …; a third call of the second fails if asked."""

    def __init__(self, *, fails: bool = False) -> None:
        self.calls: list[str] = []
        self._fails = fails

    def all(self) -> dict[str, Callable[[], dict[str, int]]]:
        return {"a": lambda: self._call("a"), "b": lambda: self._call("b")}

    def _call(self, name: str) -> dict[str, int]:
        if self._fails and self.calls.count("b") == 2 and name == "b":
            raise KeyboardInterrupt
        self.calls.append(name)
        return {"rate": len(self.calls)}


@pytest.fixture
def path(tmp_path) -> str:
    return str(tmp_path / "node.rounds")


def test_a_resumed_measurement_measures_the_missing_rounds_only(path: str) -> None:
    cut_off = Contenders(fails=True)
    with kept_in(Journal(path, CONDITIONS)), pytest.raises(KeyboardInterrupt):
        interleave("x", 5, cut_off.all())
    resumed = Contenders()
    with kept_in(Journal(path, CONDITIONS, resume=True)):
        results = interleave("x", 5, resumed.all())
    assert resumed.calls == ["a", "b", "b", "a", "a", "b"]
    assert [len(results[name]) for name in "ab"] == [5, 5]
    with kept_in(Journal(path, CONDITIONS, resume=True)):
        assert interleave("x", 5, Contenders().all()) == results


def test_measurements_with_one_label_are_kept_apart(path: str) -> None:
    contenders = Contenders()
    with kept_in(Journal(path, CONDITIONS)):
        measured = [interleave("x", 1, contenders.all()) for _ in range(2)]
    assert measured[0] != measured[1]
    with kept_in(Journal(path, CONDITIONS, resume=True)):
        assert [interleave("x", 1, contenders.all()) for _ in range(2)] == measured


def test_an_entry_that_was_cut_off_is_measured_again(path: str) -> None:
    contenders = Contenders()
    with kept_in(Journal(path, CONDITIONS)):
        interleave("x", 2, contenders.all())
    with open(path, "r+b") as file:
        file.truncate(file.seek(0, 2) - 3)
    for expected in (["a", "b", "b", "a", "b", "a"], ["a", "b", "b", "a", "b", "a"]):
        with kept_in(Journal(path, CONDITIONS, resume=True)):
            interleave("x", 2, contenders.all())
        assert contenders.calls == expected


@pytest.mark.parametrize(("change", "words"), [({"program": "2e"}, "another program"), ({}, "does not exist")])
def test_rounds_of_other_conditions_are_refused(path: str, change: dict[str, str], words: str) -> None:
    if change:
        Journal(path, CONDITIONS)
    with pytest.raises(BenchError, match=words):
        Journal(path, {**CONDITIONS, **change}, resume=True)


def test_without_a_journal_every_round_is_measured() -> None:
    contenders = Contenders()
    interleave("x", 2, contenders.all())
    assert contenders.calls == ["a", "b", "b", "a"]


def column(label: str, contenders: Contenders) -> Callable[[], list[Figure]]:
    """A column of two rounds."""

    def measure() -> list[Figure]:
        results = interleave(label, 2, contenders.all())
        return [Figure(label, label, "s", None, {name: [one["rate"] for one in of] for name, of in results.items()})]

    return measure


def test_after_the_time_no_round_begins_and_columns_with_a_round_are_published(path: str, monkeypatch) -> None:
    contenders = Contenders()
    # The first column has one of its two rounds when the time is over.
    monkeypatch.setattr(rounds.Kept, "is_over", classmethod(lambda _: len(contenders.calls) >= 2))
    with kept_in(Journal(path, CONDITIONS)):
        found = while_time_lasts([column("x", contenders), column("y", contenders)])
    assert [figure.id for figure in found] == ["x"] and fewest(found) == 1
    assert contenders.calls == ["a", "b"]
    monkeypatch.undo()
    resumed = Contenders()
    with kept_in(Journal(path, CONDITIONS, resume=True)):
        found = while_time_lasts([column("x", resumed), column("y", resumed)])
    assert [figure.id for figure in found] == ["x", "y"] and fewest(found) == 2
    assert resumed.calls == ["b", "a", "a", "b", "b", "a"]


def test_a_figure_that_was_not_measured_has_no_part_in_the_least_number_of_rounds() -> None:
    measured = Figure("x", "x", "s", "a", {"a": [1.0, 2.0], "b": [1.0]})
    assert fewest([measured, Figure("y", "y", "s", "a", {})]) == 2
    assert fewest([Figure("y", "y", "s", "a", {})]) == 0


def test_a_run_without_time_measures_nothing_and_says_so(path: str) -> None:
    contenders = Contenders()
    with kept_in(Journal(path, CONDITIONS), minutes=0), pytest.raises(OutOfTime, match="before anything was measured"):
        while_time_lasts([column("x", contenders)])
    assert contenders.calls == []
    assert not rounds.Kept.is_over(), "the next part has its own time"
