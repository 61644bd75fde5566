"""Tables and plots of parts that compare many contenders over several conditions: a row per contender, a column per
condition and quantity, every contender's row printed.

The id of a figure is `PART/GROUP/COLUMN/QUANTITY`; each group has a table, and a plot if its contenders are named
`WAY, NUMBER THINGS`.
"""

from __future__ import annotations

import os
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench.harness.figures import Metric
from bench.report import plot
from bench.report.plot import Panel, Point, Series
from cheetah.bench.figure import Figure
from cheetah.bench.units import short

PLOTS_DIR = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "plots")
NUMBERED = re.compile(r"(?P<way>.*), (?P<number>\d+) \S+")
POINTS_MIN = 2

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
        heads.append(f"{figure.what.rpartition(': ')[2]}, {column} ({figure.unit})")
    names = list(
        dict.fromkeys(name for columns in by_metric.values() for figure in columns.values() for name in figure.samples)
    )
    lines = [f"| | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for name in names:
        row = [_cell(by_metric[metric][column], name) for metric, column in cells]
        # A pipe in a name would end the cell.
        lines.append(f"| {name} | {' | '.join(row)} |".replace("| nc", "\\| nc"))
    return lines


def _panel(metric: str, columns: Mapping[str, Figure]) -> Panel | None:
    """x: the numbers; a colour per column, a dash per way."""
    names = dict.fromkeys(name for figure in columns.values() for name in figure.samples)
    found = [match for name in names if (match := NUMBERED.fullmatch(name))]
    numbers = sorted({int(match["number"]) for match in found})
    ways = list(dict.fromkeys(match["way"] for match in found))
    if len(numbers) < POINTS_MIN:
        return None
    things = found[0].string.rpartition(" ")[2]
    series = [
        Series(f"{way}, {column}", [_point(figure, f"{way}, {number} {things}") for number in numbers], group, style)
        for group, (column, figure) in enumerate(columns.items())
        for style, way in enumerate(ways)
    ]
    first = next(iter(columns.values()))
    return Panel(f"{metric} by {things}", first.unit, [str(number) for number in numbers], series)


def _point(figure: Figure, name: str) -> Point | None:
    values = figure.samples.get(name)
    return Point(statistics.median(values), min(values), max(values)) if values else None


def report(part: str) -> Callable[[Sequence[Figure]], list[str]]:
    """Returns the function that renders a part: its lines, and its plots beside the report."""

    def lines_of(found: Sequence[Figure]) -> list[str]:
        lines: list[str] = []
        for number, (group, by_metric) in enumerate(_groups(found).items(), 1):
            lines += [f"{group}:", "", *table(by_metric), ""]
            panels = [panel for metric, columns in by_metric.items() if (panel := _panel(metric, columns))]
            if panels:
                os.makedirs(PLOTS_DIR, exist_ok=True)
                name = f"{part}-{number}.svg"
                with open(os.path.join(PLOTS_DIR, name), "w", encoding="utf-8") as file:
                    file.write(plot.render(panels))
                lines += [f"![{group}](../plots/{name})", ""]
        return lines

    return lines_of
