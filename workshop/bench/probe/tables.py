"""The tables and plots of `probe` and the parts beside it: stored by a run, shown by the report."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Callable, Sequence

from bench.report import curves
from bench.report.curves import Chart, Curve
from bench.report.prefetching import PLOTS_DIR
from bench.report.store import OUT_DIR, Folder

PROBE = "probe"


@dataclasses.dataclass
class Table:
    """A table with a heading."""

    title: str
    heads: list[str]
    rows: list[list[str]] = dataclasses.field(default_factory=list)
    note: str = ""

    def lines(self) -> list[str]:
        """Formats it for the report."""
        lines = [f"**{self.title}**", ""]
        lines += [f"| {' | '.join(self.heads)} |", "|---" * len(self.heads) + "|"]
        lines += [f"| {' | '.join(row)} |" for row in self.rows]
        return [*lines, "", *([self.note, ""] if self.note else [])]


@dataclasses.dataclass
class Plot:
    """Charts in one file."""

    key: str
    title: str
    charts: list[Chart]

    def lines(self) -> list[str]:
        """Draws it, and returns the report's line that shows it."""
        os.makedirs(PLOTS_DIR, exist_ok=True)
        with open(os.path.join(PLOTS_DIR, f"{self.key}.svg"), "w", encoding="utf-8") as file:
            file.write(curves.render(self.charts))
        return [f"![{self.title}](plots/{self.key}.svg)", ""]


def _kept(part: str) -> str:
    return f"{part}.tables.json"


def save(tables: Sequence[Table], plots: Sequence[Plot], part: str = PROBE) -> None:
    """Stores them, replacing those of an earlier run."""
    os.makedirs(Folder.path, exist_ok=True)
    content = {
        "tables": [dataclasses.asdict(table) for table in tables],
        "plots": [dataclasses.asdict(plot) for plot in plots],
    }
    with open(os.path.join(Folder.path, _kept(part)), "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)


def load(part: str = PROBE) -> tuple[list[Table], list[Plot]]:
    """Returns what was stored; nothing without a run."""
    try:
        with open(os.path.join(OUT_DIR, _kept(part)), encoding="utf-8") as file:
            content = json.load(file)
    except FileNotFoundError:
        return [], []
    plots = [
        Plot(
            plot["key"],
            plot["title"],
            [Chart(**{**chart, "curves": [Curve(**curve) for curve in chart["curves"]]}) for chart in plot["charts"]],
        )
        for plot in content["plots"]
    ]
    return [Table(**table) for table in content["tables"]], plots


def report(_: object, part: str = PROBE) -> list[str]:
    """Returns all of a part as lines."""
    tables, plots = load(part)
    lines = [line for table in tables for line in table.lines()]
    return lines + [line for plot in plots for line in plot.lines()]


def report_of(part: str) -> Callable[[object], list[str]]:
    """Returns the report of another part than `probe`."""
    return functools.partial(report, part=part)
