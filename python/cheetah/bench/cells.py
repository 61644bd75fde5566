"""The measurements of storage arranged for tables: a cell for each target, step and state."""

import dataclasses
import functools
import re
import statistics
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from cheetah import sizes
from cheetah.bench import results
from cheetah.bench.figure import overlap
from cheetah.bench.results import Part
from cheetah.bench.storage.sample import COLD, WARM, Outcome, Sample

MATRIX = "fio/"
"""The prefix of the matrix's keys: fio/OPERATION/FILE/RECORD."""
_GRAVEST = (Outcome.HUNG, Outcome.FAILED, Outcome.NOT_REACHED, Outcome.SKIPPED)
_ENDED = "the run ended before this was measured"
_NUMBER = re.compile(r"\d[\d.,]*")


@dataclasses.dataclass(frozen=True)
class Ratio:
    """The speed-up over the baseline: the ratio of the medians, and its bounds by the slowest and the fastest of either
    side. `uncertain`: the difference may be chance. `once`: either side was measured once, so no spread is known."""

    value: float
    low: float
    high: float
    uncertain: bool
    once: bool


class Note(NamedTuple):
    """A footnote of a figure. Notes of one kind differ only in their numbers."""

    text: str
    kind: str


@dataclasses.dataclass(frozen=True)
class Cell:
    """One step on one target in one state, with all its repetitions."""

    part: str
    step: str
    """The step's key."""
    state: str
    target: str
    rounds: int
    """The number of repetitions requested."""
    samples: tuple[Sample, ...]
    """In the order of the repetitions. A step that can no longer be done has one sample for all remaining
    repetitions."""

    @property
    def whole(self) -> bool:
        """Whether the run finished with this cell, successfully or not."""
        return len(self.samples) >= self.rounds or len(self.done) < len(self.samples)

    @property
    def figure(self) -> str:
        """Returns PART/STEP/STATE, as in results.csv."""
        return f"{self.part}/{self.step}/{self.state}"

    @functools.cached_property
    def values(self) -> tuple[float, ...]:
        """Seconds, or bytes per second in the matrix; one for each completed repetition."""
        found = [one.bytes_per_s if self.is_rate else one.seconds for one in self.done]
        return tuple(value for value in found if value is not None)

    @property
    def is_rate(self) -> bool:
        """Whether more is better."""
        return any(one.bytes_per_s is not None for one in self.samples)

    @functools.cached_property
    def done(self) -> tuple[Sample, ...]:
        """The samples that are measurements."""
        return tuple(one for one in self.samples if one.outcome is Outcome.DONE)

    @property
    def median(self) -> float:
        """The median of the completed repetitions; only if there are any."""
        return statistics.median(self.values)

    @property
    def word(self) -> str:
        """The word shown in place of a figure."""
        if self.values:
            return ""
        found = {one.outcome for one in self.samples}
        return next((str(outcome) for outcome in _GRAVEST if outcome in found), "not measured")

    @functools.cached_property
    def notes(self) -> tuple[Note, ...]:
        """The reasons for failed repetitions, and unusual circumstances."""
        return tuple([*self._problems(), *self._warnings()])

    @property
    def bottleneck(self) -> str:
        """The bottleneck of most repetitions; "" if unknown."""
        named = [one.bottleneck for one in self.done if one.bottleneck]
        return statistics.mode(named) if named else ""

    def middle(self, name: str) -> float | None:
        """Returns the median of another quantity of the samples, or None if it was not measured."""
        found = [value for one in self.done if (value := getattr(one, name)) is not None]
        return statistics.median(found) if found else None

    def _problems(self) -> Iterator[Note]:
        if not self.samples:
            yield Note(_ENDED, _ENDED)
        missed: dict[str, int] = {}
        for one in self.samples:
            if one.outcome is not Outcome.DONE:
                said = one.problem or f"{one.outcome}, for an unknown reason"
                stands_for = max(self.rounds - len(self.samples), 0) if one is self.samples[-1] else 0
                missed[said] = missed.get(said, 0) + 1 + stands_for
        for said, times in missed.items():
            text = self._of_all(said, times, max(self.rounds, len(self.samples)))
            yield Note(text, text)

    def _warnings(self) -> Iterator[Note]:
        found: dict[str, tuple[str, int]] = {}
        for one in self.done:
            for said in one.warnings:
                kind = _NUMBER.sub("#", said)
                first, times = found.get(kind, (said, 0))
                found[kind] = first, times + 1
        for kind, (said, times) in found.items():
            yield Note(self._of_all(said, times, len(self.done)), kind)

    @staticmethod
    def _of_all(said: str, times: int, every: int) -> str:
        return said if times >= every else f"{times} of {every} repetitions: {said}"


@dataclasses.dataclass(frozen=True)
class Table:
    """The table of targets × steps in one state."""

    state: str
    steps: tuple[str, ...]
    """Keys."""


@dataclasses.dataclass(frozen=True)
class Grid:
    """One operation of the matrix: record sizes × file sizes, as in the keys, ascending."""

    operation: str
    title: str
    state: str
    records: tuple[str, ...]
    files: tuple[str, ...]

    def step(self, file: str, record: str) -> str:
        """Returns the key of a cell's step."""
        return f"{MATRIX}{self.operation}/{file}/{record}"

    def steps(self, storage: "Storage") -> list[str]:
        """Returns the keys of the existing cells."""
        every = (self.step(file, record) for file in self.files for record in self.records)
        return [step for step in every if step in storage.steps]


class Storage:
    """The storage part of the results. Targets and steps keep the order of the command line."""

    def __init__(self, part: Part) -> None:
        self.part = part
        samples = results.samples(part)
        self.targets: list[str] = list(
            dict.fromkeys([*(one["name"] for one in part.get("targets", ())), *(one.target for one in samples)])
        )
        self.about: dict[str, dict[str, Any]] = {one["name"]: one for one in part.get("targets", ())}
        self.steps: dict[str, dict[str, Any]] = {one["key"]: one for one in part.get("steps", ())}
        for one in samples:
            self.steps.setdefault(one.step, {"key": one.step, "title": one.step})
        self.baseline = _baseline(part, self.targets)
        self._samples: dict[tuple[str, str, str], list[Sample]] = {}
        for one in samples:
            self._samples.setdefault((one.step, one.state, one.target), []).append(one)
        self._there = {key[:2] for key in self._samples}
        self._cells: dict[tuple[str, str, str], Cell] = {}
        known = dict.fromkeys(state for _, state, _ in self._samples)
        self.states: list[str] = sorted(
            known, key=lambda state: (COLD, WARM).index(state) if state in (COLD, WARM) else 2
        )

    @property
    def repetitions(self) -> int:
        """The largest number of repetitions of any cell."""
        return max(map(len, self._samples.values()), default=0)

    @property
    def rounds(self) -> int:
        """The number of repetitions requested, if known."""
        rounds = self.part.get("rounds")
        return rounds if isinstance(rounds, int) else self.repetitions

    @property
    def whole(self) -> bool:
        """Whether the run was completed."""
        return all(cell.whole for cell in self.cells())

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the run, if the results have them."""
        found = self.part.get("settings")
        return found if isinstance(found, dict) else {}

    def title(self, step: str) -> str:
        """Returns the title of a step."""
        return str(self.steps[step].get("title", step))

    def cell(self, step: str, state: str, target: str) -> Cell:
        """Returns a cell; one without samples if it was not measured."""
        key = step, state, target
        if key not in self._cells:
            samples = sorted(self._samples.get(key, ()), key=lambda one: one.repetition)
            self._cells[key] = Cell(self.part["part"], step, state, target, self.rounds, tuple(samples))
        return self._cells[key]

    def cells(self) -> Iterator[Cell]:
        """Yields all cells."""
        for step in self.steps:
            for state in self.states:
                if (step, state) in self._there:
                    yield from (self.cell(step, state, target) for target in self.targets)

    def tables(self) -> list[Table]:
        """Returns one table for each state, with the steps timed in it."""
        made = []
        for state in self.states:
            timed = [step for step in self.steps if not step.startswith(MATRIX) and (step, state) in self._there]
            if timed:
                made.append(Table(state, tuple(timed)))
        return made

    def grids(self) -> list[Grid]:
        """Returns one grid for each operation of the matrix."""
        found: dict[tuple[str, str], tuple[dict[str, None], dict[str, None]]] = {}
        for step in self.steps:
            words = step.split("/")
            if not step.startswith(MATRIX) or len(words) != 4:
                continue
            for state in self.states:
                if (step, state) in self._there:
                    files, records = found.setdefault((words[1], state), ({}, {}))
                    files[words[2]] = records[words[3]] = None
        return [
            Grid(name, self._title_of(name), state, tuple(sorted(records, key=size)), tuple(sorted(files, key=size)))
            for (name, state), (files, records) in found.items()
        ]

    def ratio(self, cell: Cell) -> Ratio | None:
        """Returns the speed-up of a cell; None for the baseline's own, and if there is nothing to compare."""
        base = self.cell(cell.step, cell.state, self.baseline)
        if cell.target == self.baseline or not cell.values or not base.values or base.is_rate != cell.is_rate:
            return None
        above, below = (cell, base) if cell.is_rate else (base, cell)
        if not min(*below.values, below.median):
            return None
        return Ratio(
            above.median / below.median,
            min(above.values) / max(below.values),
            max(above.values) / min(below.values),
            overlap(above.values, below.values),
            min(len(above.values), len(below.values)) < 2,
        )

    def _title_of(self, operation: str) -> str:
        return self.operation(next(step for step in self.steps if step.startswith(f"{MATRIX}{operation}/")))

    def operation(self, step: str) -> str:
        """Returns the title of a matrix step's operation."""
        said = self.title(step).partition(",")[0]
        return step.split("/")[1].replace("-", " ") if said.startswith(MATRIX) else said


def size(text: str) -> int:
    """Returns the bytes of "64KiB", or 0 if it is not a size."""
    try:
        return sizes.parse(text)
    except ValueError:
        return 0


def _baseline(part: Part, targets: Sequence[str]) -> str:
    named = [part.get("baseline"), *(figure.get("baseline") for figure in part.get("figures", ()))]
    return next((str(name) for name in named if name in targets), targets[0] if targets else "")
