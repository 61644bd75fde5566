"""The tables of the report, as its templates need them."""

import dataclasses
import math
import statistics
from collections.abc import Iterator, Sequence

from markupsafe import Markup

from cheetah.bench.cells import Cell, Grid, Ratio, Storage
from cheetah.bench.report import charts
from cheetah.bench.report.number import Number
from cheetah.bench.report.remarks import Remarks
from cheetah.bench.report.verdict import step_winners
from cheetah.bench.sheet import ratio_text, spread_percent, value_text
from cheetah.page import units

SHADES = 7
_DECIDED_BY = {
    "storage": ("device", "io stalled"), "processor (one)": ("tool",), "processors (all)": ("processors",),
    "memory": ("memory stalled",), "network": ("network",),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class TableCell:
    """A cell in a table."""

    cell: Cell
    middle: Number | None
    """None if it was not measured; `cell.word` says why."""
    low: Number | None
    high: Number | None
    """None if it was measured once."""
    spread: Number | None
    ratio: Ratio | None
    times: Number | None
    """The speed-up."""
    least: Number | None
    most: Number | None
    """Its bounds; None if the spread is unknown."""
    remarks: list[int]
    share: float
    """Relative to the slowest beside it: 0 to 1."""
    first: bool = False
    """Whether it is the fastest of all, beyond the spread."""


@dataclasses.dataclass(frozen=True)
class Detail:
    """A row of a step's table, with everything known about a cell."""

    shown: TableCell
    state: str
    strip: Markup
    facts: dict[str, Number | None]
    """By a sample's field; None if it was not measured."""
    bottleneck: str
    decided: Number | None


class StorageTables:
    """The tables of the storage part."""

    def __init__(self, storage: Storage, remarks: Remarks) -> None:
        self._storage = storage
        self._remarks = remarks
        compared = [(list(table.steps), table.state) for table in storage.tables()]
        compared += [(grid.steps(storage), grid.state) for grid in storage.grids()]
        self._first = {
            id(one.first) for steps, state in compared for one in step_winners(storage, steps, state) if one.clear
        }

    def shown(self, cell: Cell, most: float) -> TableCell:
        """Returns a cell; the slowest beside it took `most`."""
        ratio, several = self._storage.ratio(cell), len(cell.values) > 1
        bounds = ratio if ratio and not ratio.once else None
        return TableCell(
            cell,
            _number(cell, "median", cell.median) if cell.values else None,
            _number(cell, "min", min(cell.values)) if several else None,
            _number(cell, "max", max(cell.values)) if several else None,
            _stat(cell, "spread", spread_percent(cell), f"{spread_percent(cell):.1f} %") if several else None,
            ratio,
            _stat(cell, "ratio", ratio.value, ratio_text(ratio)) if ratio else None,
            _stat(cell, "ratio-min", bounds.low, f"{bounds.low:.2f}") if bounds else None,
            _stat(cell, "ratio-max", bounds.high, f"{bounds.high:.2f}") if bounds else None,
            self._remarks.numbers(cell),
            cell.median / most if cell.values and most else 0.0,
            id(cell) in self._first,
        )

    def seeds(self, steps: Sequence[str], state: str) -> Iterator[tuple[str, list[TableCell]]]:
        """Yields the table of targets × steps, a row for each target."""
        most = {step: self._most(step, [state]) for step in steps}
        for target in self._storage.targets:
            row = [self.shown(self._storage.cell(step, state, target), most[step]) for step in steps]
            if any(one.cell.samples for one in row):
                yield target, row

    def details(self, step: str, states: list[str]) -> Iterator[tuple[str, list[Detail]]]:
        """Yields a row for each target and state of a step."""
        most = self._most(step, states)
        longest = max((max(cell.values) for cell in self._cells(step, states) if cell.values), default=0.0)
        for target in self._storage.targets:
            rows = [
                self._detail(cell, state, most, longest)
                for state in states
                if (cell := self._storage.cell(step, state, target)).samples
            ]
            if rows:
                yield target, rows

    def matrix(self, grid: Grid) -> Iterator[tuple[str, list[tuple[str, list[tuple[TableCell | None, int]]]]]]:
        """Yields, for each target, the rows of an operation's table: the record size, and cells with their shades, on
        one scale for all targets."""
        rates = [cell.median for target in self._storage.targets for cell in self._of(grid, target) if cell.values]
        positive = [rate for rate in rates if rate > 0]
        low, high = (min(positive), max(positive)) if positive else (1.0, 1.0)
        for target in self._storage.targets:
            if any(cell.samples for cell in self._of(grid, target)):
                yield (
                    target,
                    [
                        (record, [self._heated(grid, target, file, record, low, high) for file in grid.files])
                        for record in grid.records
                    ],
                )

    def _heated(
        self, grid: Grid, target: str, file: str, record: str, low: float, high: float
    ) -> tuple[TableCell | None, int]:
        step = grid.step(file, record)
        if step not in self._storage.steps:
            return None, 0
        shown = self.shown(self._storage.cell(step, grid.state, target), 0.0)
        return shown, shade(shown.cell.median, low, high) if shown.cell.values else 0

    def _of(self, grid: Grid, target: str) -> list[Cell]:
        return [self._storage.cell(step, grid.state, target) for step in grid.steps(self._storage)]

    def _cells(self, step: str, states: list[str]) -> Iterator[Cell]:
        for state in states:
            yield from (self._storage.cell(step, state, target) for target in self._storage.targets)

    def _most(self, step: str, states: list[str]) -> float:
        return max((cell.median for cell in self._cells(step, states) if cell.values), default=0.0)

    def _detail(self, cell: Cell, state: str, most: float, longest: float) -> Detail:
        sort, decided = _bottleneck(cell)
        baseline = cell.target == self._storage.baseline
        return Detail(
            self.shown(cell, most), state, charts.strip(cell, longest, baseline), dict(_facts(cell)), sort, decided
        )


def shade(rate: float, low: float, high: float) -> int:
    """Returns a shade from 1, the slowest, to `SHADES`, in equal steps of the ratio."""
    if rate <= 0 or high <= low:
        return 1 if rate <= 0 else SHADES // 2
    return 1 + min(SHADES - 1, int(SHADES * math.log(rate / low) / math.log(high / low)))


def _facts(cell: Cell) -> Iterator[tuple[str, Number | None]]:
    for name in ("tool_s", "flush_s", "cpu_s"):
        value = cell.middle(name)
        yield name, None if value is None else _stat(cell, name, value, _duration(value))
    sizes = ("memory_peak_bytes", "read_bytes", "written_bytes", "device_read_bytes", "device_written_bytes")
    for name in sizes:
        value = cell.middle(name)
        yield name, None if value is None else _stat(cell, name, value, units.size(int(value)))
    for name, value in (
        ("resident_share_before", cell.middle("resident_share_before")),
        ("busy.tool", _busy(cell, "tool")),
    ):
        yield name, None if value is None else _stat(cell, name, value, _percent(value))


def _bottleneck(cell: Cell) -> tuple[str, Number | None]:
    """Returns the bottleneck of most repetitions, and its utilization in them."""
    sort = cell.bottleneck
    shares = {what: share for what in _DECIDED_BY.get(sort, ()) if (share := _busy(cell, what, sort)) is not None}
    what = max(shares, key=lambda key: shares[key], default=None)
    if what is None:
        return sort, None
    return sort, _stat(cell, f"held.{what}", shares[what], f"{what} {_percent(shares[what])}")


def _busy(cell: Cell, what: str, bottleneck: str | None = None) -> float | None:
    found = [one.busy[what] for one in cell.done if what in one.busy and bottleneck in (None, one.bottleneck)]
    return statistics.median(found) if found else None


def _duration(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else units.duration(seconds)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share == 0 or share >= 0.01 else "< 1 %"


def _number(cell: Cell, stat: str, value: float) -> Number:
    return Number(cell.figure, cell.target, stat, value, value_text(cell, value))


def _stat(cell: Cell, stat: str, value: float, text: str) -> Number:
    return Number(cell.figure, cell.target, stat, value, text)
