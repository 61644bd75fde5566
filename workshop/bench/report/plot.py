"""SVG line charts for the report: categories on the x axis, a line per series, the spread as a thin bar."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from bench.report.panels import BOTTOM, COLOURS, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Panels, Stroke, ticks_of
from cheetah.bench.units import short

DASHES = ("", "6 3", "2 3")


@dataclasses.dataclass(frozen=True)
class Point:
    """A median with the lowest and the highest of its samples."""

    middle: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Series:
    """A line: a value for each category, or None. Lines of one `group` share a colour, those of one `style` a dash."""

    name: str
    points: Sequence[Point | None]
    group: int
    style: int = 0


@dataclasses.dataclass(frozen=True)
class Panel:
    """A chart. The y axis is logarithmic: values at 0 and 20 ms of delay are far apart."""

    title: str
    unit: str
    categories: Sequence[str]
    series: Sequence[Series]


class _Scale:
    """Maps categories and values to positions."""

    def __init__(self, panel: Panel, x_offset: float) -> None:
        values = [
            value
            for line in panel.series
            for point in line.points
            if point
            for value in (point.low, point.high)
            if value > 0
        ]
        self.ticks = ticks_of(min(values), max(values)) if values else [1.0, 10.0]
        self._low, self._high = math.log10(self.ticks[0]), math.log10(self.ticks[-1])
        self._high += self._high == self._low
        self._step = (WIDTH - LEFT - RIGHT) / max(1, len(panel.categories))
        self._x_offset = x_offset

    def x(self, index: int) -> float:
        """Returns the position of a category."""
        return self._x_offset + LEFT + (index + 0.5) * self._step

    def y(self, value: float) -> float:
        """Returns the position of a value."""
        share = (math.log10(max(value, 10**self._low)) - self._low) / (self._high - self._low)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _stroke(line: Series) -> Stroke:
    dash = DASHES[line.style % len(DASHES)]
    return {"stroke": COLOURS[line.group % len(COLOURS)], "stroke_width": 2} | (
        {"stroke_dasharray": dash} if dash else {}
    )


def _draw(drawing: Panels, line: Series, scale: _Scale) -> None:
    stroke = _stroke(line)
    placed = [(scale.x(index), point) for index, point in enumerate(line.points) if point]
    drawing.polyline([(x, scale.y(point.middle)) for x, point in placed], **stroke)
    for x, point in placed:
        drawing.polyline([(x, scale.y(point.low)), (x, scale.y(point.high))], stroke=stroke["stroke"])
        drawing.add("circle", cx=x, cy=scale.y(point.middle), r=3, fill=stroke["stroke"])


def render(panels: Sequence[Panel]) -> str:
    """Returns charts side by side, with the legend of the first."""
    titles = [f"{panel.title} ({panel.unit})" for panel in panels]
    drawing = Panels(titles, [(line.name, _stroke(line)) for line in panels[0].series])
    for number, panel in enumerate(panels):
        scale = _Scale(panel, number * WIDTH)
        columns = [(scale.x(index), category) for index, category in enumerate(panel.categories)]
        drawing.axes(number, [(scale.y(tick), short(tick)) for tick in scale.ticks], columns)
        for line in panel.series:
            _draw(drawing, line, scale)
    return drawing.file()
