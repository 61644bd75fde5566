"""SVG charts of horizontal bars: a row for each contender, in it a bar for each quantity, from zero, with the spread as a thin
line; charts below each other, with one legend."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from bench.report.panels import COLOURS
from bench.report.plot import Point
from cheetah.bench.units import short
from cheetah.page.svg import Drawing

WIDTH, LEFT, RIGHT = 920, 300, 90
TITLE, BAR, BETWEEN, AFTER, LEGEND = 26, 10, 6, 14, 24


@dataclasses.dataclass(frozen=True)
class Rows:
    """A chart: by contender, the bar of each quantity. All quantities have one unit."""

    title: str
    unit: str
    rows: Mapping[str, Mapping[str, Point]]

    @property
    def quantities(self) -> list[str]:
        """Returns the quantities, in the order in which they appear."""
        return list(dict.fromkeys(name for bars in self.rows.values() for name in bars))

    @property
    def height(self) -> float:
        """Returns the height of the chart."""
        row = BAR * max(1, len(self.quantities)) + BETWEEN
        return TITLE + row * len(self.rows) + AFTER


def render(charts: Sequence[Rows]) -> str:
    """Returns charts below each other, each with a scale of its own."""
    quantities = list(dict.fromkeys(name for chart in charts for name in chart.quantities))
    colours = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(quantities)}
    legend = LEGEND if len(quantities) > 1 else 0
    height = sum(chart.height for chart in charts) + legend
    titles = "; ".join(chart.title for chart in charts)
    drawing = Drawing("rows", WIDTH, height, titles, "The figures are in a table.")
    top = 0.0
    for chart in charts:
        _draw(drawing, top, chart, colours)
        top += chart.height
    if legend:
        step = (WIDTH - LEFT) / len(quantities)
        for number, name in enumerate(quantities):
            x = LEFT + number * step
            drawing.add("rect", x=x, y=top + 4, width=18, height=BAR, fill=colours[name])
            drawing.label(x + 24, top + 4 + BAR, name)
    return drawing.file()


def _draw(drawing: Drawing, top: float, chart: Rows, colours: Mapping[str, str]) -> None:
    most = max((bar.high for bars in chart.rows.values() for bar in bars.values()), default=0.0) or 1.0

    def x(value: float) -> float:
        return LEFT + value / most * (WIDTH - LEFT - RIGHT)

    drawing.add("text", f"{chart.title} ({chart.unit})", x=8, y=top + 17, font_weight="bold")
    y = top + TITLE
    for name, bars in chart.rows.items():
        height = BAR * max(1, len(chart.quantities))
        drawing.label(LEFT - 8, y + height / 2 + 4, name, "end")
        for number, quantity in enumerate(chart.quantities):
            if bar := bars.get(quantity):
                place = y + number * BAR
                drawing.add("rect", x=LEFT, y=place, width=x(bar.middle) - LEFT, height=BAR - 1, fill=colours[quantity])
                middle = place + (BAR - 1) / 2
                drawing.polyline([(x(bar.low), middle), (x(bar.high), middle)], stroke="#000")
                drawing.label(x(bar.high) + 6, place + BAR - 1, short(bar.middle))
        y += height + BETWEEN
