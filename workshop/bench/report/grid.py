"""Tables and plots of parts that compare many contenders over several conditions: a row per contender, a column per
condition and quantity, every contender's row printed.

The id of a figure is `PART/GROUP/COLUMN/QUANTITY`; each group has a table and a plot. If contenders are named `WAY, NUMBER
THINGS` or `KEY=NUMBER`, the plot has lines over the numbers, and the others as level lines. Otherwise it has bars.
"""

from __future__ import annotations

import dataclasses
import os
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench.harness.figures import Metric
from bench.report import plot, rows
from bench.report.panels import COLOURS
from bench.report.plot import Panel, Point, Series
from bench.report.rows import Rows
from cheetah.bench.figure import Figure
from cheetah.bench.units import short

PLOTS_DIR = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "plots")
# One of something and several of it are the same thing.
NUMBERED = re.compile(r"(?P<way>.*), (?P<number>\d+) (?P<things>[^,]+?)s?")
KEYED = re.compile(r"(?P<way>(?P<things>\w+))=(?P<number>\d+)")
POINTS_MIN = 3
# With more lines than these, each condition has a panel of its own.
LINES_MAX = 8

Results = Mapping[str, Sequence[Mapping[str, Any]]]


def figures(
    part: str, group: str, column: str, results: Results, metrics: Sequence[Metric], note: str = ""
) -> list[Figure]:
    """Returns a figure for each quantity of one group under one condition, of equal candidates."""
    found = []
    for metric in metrics:
        samples = {
            name: [one[metric.key] for one in rounds if one.get(metric.key) is not None]
            for name, rounds in results.items()
        }
        samples = {name: values for name, values in samples.items() if values}
        name = f"{part}/{_plain(group)}/{_plain(column)}/{metric.key}"
        what = f"{group}, {column}: {metric.what}"
        if samples:
            found.append(Figure(name, what, metric.unit, None, samples, metric.better, None, note))
    return found


def _plain(text: str) -> str:
    return text.replace("/s", " a second").replace("/", " or ")


def _groups(found: Sequence[Figure]) -> dict[str, dict[str, dict[str, Figure]]]:
    """Returns the figures by group, quantity and column."""
    groups: dict[str, dict[str, dict[str, Figure]]] = {}
    for figure in found:
        parts = figure.id.split("/")
        if figure.ours is None and len(parts) == 4:
            _, group, column, metric = parts
            groups.setdefault(group, {}).setdefault(metric, {})[column] = figure
    return groups


def _names(by_metric: Mapping[str, Mapping[str, Figure]]) -> list[str]:
    found = (figure for columns in by_metric.values() for figure in columns.values())
    return list(dict.fromkeys(name for figure in found for name in figure.samples))


def _cell(figure: Figure | None, name: str) -> str:
    values = figure.samples.get(name) if figure else None
    if not values:
        return ""
    return f"{short(statistics.median(values))} [{short(min(values))} – {short(max(values))}]"


def table(by_metric: Mapping[str, Mapping[str, Figure]]) -> list[str]:
    """Returns the table of one group."""
    cells = [(metric, column) for metric, columns in by_metric.items() for column in columns]
    heads = []
    for metric, column in cells:
        figure = by_metric[metric][column]
        heads.append(f"{_quantity(figure)}, {column} ({figure.unit})")
    lines = [f"| | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for name in _names(by_metric):
        row = [_cell(by_metric[metric][column], name) for metric, column in cells]
        # A pipe in a name would end the cell.
        escaped = name.replace("|", "\\|")
        lines.append(f"| {escaped} | {' | '.join(row)} |")
    return lines


@dataclasses.dataclass(frozen=True)
class Numbered:
    """The contenders of a group by way and number, and those without a number."""

    things: str
    names: Mapping[str, Mapping[int, str]]
    others: Sequence[str]

    @property
    def numbers(self) -> list[int]:
        """Returns all numbers, in order."""
        return sorted({number for names in self.names.values() for number in names})


def numbered(names: Sequence[str]) -> Numbered | None:
    """Returns the contenders by their numbers; None if no way has several."""
    found = {name: match for name in names if (match := KEYED.fullmatch(name) or NUMBERED.fullmatch(name))}
    by_way: dict[str, dict[int, str]] = {}
    for name, match in found.items():
        by_way.setdefault(match["way"], {})[int(match["number"])] = name
    if max(map(len, by_way.values()), default=0) < POINTS_MIN:
        return None
    things = next(iter(found.values()))["things"]
    return Numbered(things, by_way, [name for name in names if name not in found])


def _series(figure: Figure, by_number: Numbered, column: str, group: int) -> list[Series]:
    """Returns the lines of one condition: a dash for each way if it shares a panel with other conditions."""
    numbers = by_number.numbers
    lines = {
        way: [_point(figure, names.get(number, "")) for number in numbers] for way, names in by_number.names.items()
    }
    lines |= {name: [_point(figure, name)] * len(numbers) for name in by_number.others}
    if column:
        return [Series(f"{way}, {column}", points, group, style) for style, (way, points) in enumerate(lines.items())]
    return [Series(way, points, place, place // len(COLOURS)) for place, (way, points) in enumerate(lines.items())]


def _lines(by_metric: Mapping[str, Mapping[str, Figure]], by_number: Numbered) -> dict[str, str]:
    """Returns the drawings of a group with numbers, by the ending of their names."""
    columns = max(map(len, by_metric.values()))
    apart = columns > 1 and columns * (len(by_number.names) + len(by_number.others)) > LINES_MAX
    if apart:
        return {
            f"-{metric}": plot.render([_panel({column: figure}, by_number) for column, figure in found.items()])
            for metric, found in by_metric.items()
        }
    return {"": plot.render([_panel(found, by_number) for found in by_metric.values()])}


def _panel(found: Mapping[str, Figure], by_number: Numbered) -> Panel:
    """Returns the panel of one quantity under these conditions; with several, a colour for each."""
    first = next(iter(found.values()))
    title = f"{_quantity(first)} by {by_number.things}"
    numbers = [str(number) for number in by_number.numbers]
    if len(found) == 1:
        return Panel(f"{title}, {next(iter(found))}", first.unit, numbers, _series(first, by_number, "", 0))
    series = [
        line
        for group, (column, figure) in enumerate(found.items())
        for line in _series(figure, by_number, column, group)
    ]
    return Panel(title, first.unit, numbers, series)


def _bars(by_metric: Mapping[str, Mapping[str, Figure]]) -> dict[str, str]:
    """Returns the drawing of a group without numbers: a chart for each condition and unit."""
    charts: dict[tuple[str, str], dict[str, dict[str, Point]]] = {}
    for figures_of in by_metric.values():
        for column, figure in figures_of.items():
            chart = charts.setdefault((column, figure.unit), {})
            for name in figure.samples:
                if point := _point(figure, name):
                    chart.setdefault(name, {})[_quantity(figure)] = point
    return {"": rows.render([Rows(column, unit, chart) for (column, unit), chart in charts.items()])}


def _quantity(figure: Figure) -> str:
    return figure.what.rpartition(": ")[2]


def _point(figure: Figure, name: str) -> Point | None:
    values = figure.samples.get(name)
    return Point(statistics.median(values), min(values), max(values)) if values else None


def drawings(by_metric: Mapping[str, Mapping[str, Figure]]) -> dict[str, str]:
    """Returns the plots of one group, by the ending of their names."""
    by_number = numbered(_names(by_metric))
    return _lines(by_metric, by_number) if by_number else _bars(by_metric)


def report(part: str) -> Callable[[Sequence[Figure]], list[str]]:
    """Returns the function that renders a part: its lines, and its plots beside the report."""

    def lines_of(found: Sequence[Figure]) -> list[str]:
        lines: list[str] = []
        os.makedirs(PLOTS_DIR, exist_ok=True)
        for number, (group, by_metric) in enumerate(_groups(found).items(), 1):
            lines += [f"{group}:", "", *table(by_metric), ""]
            for ending, drawing in drawings(by_metric).items():
                name = f"{part}-{number}{ending}.svg"
                with open(os.path.join(PLOTS_DIR, name), "w", encoding="utf-8") as file:
                    file.write(drawing)
                lines += [f"![{group}](../plots/{name})", ""]
        return lines

    return lines_of
