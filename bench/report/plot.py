"""SVG line charts for the report: categories on the x axis, a line per series, the spread as a thin bar."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from cheetah.bench.units import short

WIDTH, HEIGHT = 460, 320
LEFT, RIGHT, TOP, BOTTOM = 62, 16, 40, 56
# Distinguishable by the colour-blind (Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#f0e442")
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


def ticks_of(low: float, high: float) -> list[float]:
    """Returns 1, 2 and 5 times powers of ten around the values."""
    ticks = []
    for exponent in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        ticks += [step * 10.0**exponent for step in (1, 2, 5)]
    below = max((tick for tick in ticks if tick <= low), default=ticks[0])
    above = min((tick for tick in ticks if tick >= high), default=ticks[-1])
    return [tick for tick in ticks if below <= tick <= above]


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


def text(x: float, y: float, said: str, anchor: str = "middle", extra: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{escape(said)}</text>'


def polyline(points: Sequence[tuple[float, float]], style: str) -> str:
    return f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}" fill="none" {style}/>'


def _axes(panel: Panel, scale: _Scale, x_offset: float) -> list[str]:
    right = x_offset + WIDTH - RIGHT
    drawn = [text(x_offset + WIDTH / 2, 20, f"{panel.title} ({panel.unit})", extra=' font-weight="bold"')]
    for tick in scale.ticks:
        y = scale.y(tick)
        drawn.append(polyline([(x_offset + LEFT, y), (right, y)], 'stroke="#ddd"'))
        drawn.append(text(x_offset + LEFT - 6, y + 4, short(tick), "end"))
    for index, category in enumerate(panel.categories):
        drawn.append(text(scale.x(index), HEIGHT - BOTTOM + 18, category))
    return drawn


def _series(line: Series, scale: _Scale) -> list[str]:
    colour = COLOURS[line.group % len(COLOURS)]
    placed = [(scale.x(index), point) for index, point in enumerate(line.points) if point]
    dash = f'stroke-dasharray="{DASHES[line.style % len(DASHES)]}"'
    drawn = [
        polyline([(x, scale.y(point.middle)) for x, point in placed], f'stroke="{colour}" stroke-width="2" {dash}')
    ]
    for x, point in placed:
        drawn.append(polyline([(x, scale.y(point.low)), (x, scale.y(point.high))], f'stroke="{colour}"'))
        drawn.append(f'<circle cx="{x:.1f}" cy="{scale.y(point.middle):.1f}" r="3" fill="{colour}"/>')
    return drawn


def _legend(series: Sequence[Series]) -> list[str]:
    drawn = []
    for index, line in enumerate(series):
        x, y = 20 + (index % 3) * 300, HEIGHT + 14 + (index // 3) * 18
        dash = f'stroke-dasharray="{DASHES[line.style % len(DASHES)]}"'
        stroke = f'stroke="{COLOURS[line.group % len(COLOURS)]}" stroke-width="2" {dash}'
        drawn.append(polyline([(x, y - 4), (x + 28, y - 4)], stroke))
        drawn.append(text(x + 34, y, line.name, "start"))
    return drawn


def render(panels: Sequence[Panel]) -> str:
    """Returns charts side by side, with the legend of the first."""
    legend = panels[0].series
    height = HEIGHT + 12 + 18 * -(-len(legend) // 3)
    width = WIDTH * len(panels)
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for number, panel in enumerate(panels):
        scale = _Scale(panel, number * WIDTH)
        drawn += _axes(panel, scale, number * WIDTH)
        for line in panel.series:
            drawn += _series(line, scale)
    return "\n".join([*drawn, *_legend(legend), "</svg>"]) + "\n"
