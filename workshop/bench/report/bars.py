"""SVG bar charts: groups of bars, one for each contender, from zero, with the spread as a thin line."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from bench.report.panels import BOTTOM, COLOURS, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Panels
from bench.report.plot import Point
from cheetah.bench.units import short

ROWS = 5
# The share of a group's width that its bars take.
FILLED = 0.8


@dataclasses.dataclass(frozen=True)
class Bars:
    """A chart: by group, the bar of each contender."""

    title: str
    unit: str
    groups: Mapping[str, Mapping[str, Point]]


def render(charts: Sequence[Bars]) -> str:
    """Returns charts side by side, with one legend."""
    names = list(dict.fromkeys(name for chart in charts for bars in chart.groups.values() for name in bars))
    colours = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(names)}
    titles = [f"{chart.title} ({chart.unit})" for chart in charts]
    drawing = Panels(titles, [(name, {"stroke": colours[name], "stroke_width": 8}) for name in names])
    for number, chart in enumerate(charts):
        _draw(drawing, number, chart, colours)
    return drawing.file()


def _draw(drawing: Panels, number: int, chart: Bars, colours: Mapping[str, str]) -> None:
    top = max((bar.high for bars in chart.groups.values() for bar in bars.values()), default=0.0) or 1.0
    left, step = number * WIDTH + LEFT, (WIDTH - LEFT - RIGHT) / max(1, len(chart.groups))

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)

    rows = [(y(top * row / ROWS), short(top * row / ROWS)) for row in range(ROWS + 1)]
    columns = [(left + (place + 0.5) * step, name) for place, name in enumerate(chart.groups)]
    drawing.axes(number, rows, columns)
    for place, bars in enumerate(chart.groups.values()):
        width = step * FILLED / max(1, len(bars))
        for index, (name, bar) in enumerate(bars.items()):
            x = left + (place + (1 - FILLED) / 2) * step + index * width
            drawing.add("rect", x=x, y=y(bar.middle), width=width, height=y(0) - y(bar.middle), fill=colours[name])
            middle = x + width / 2
            drawing.polyline([(middle, y(bar.low)), (middle, y(bar.high))], stroke="#000")
