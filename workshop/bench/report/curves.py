"""SVG charts of distributions and histograms, a line each, over a scale of values."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from bench.report.panels import BOTTOM, COLOURS, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Panels, ticks_of
from cheetah.bench.units import short

SHARES = 5


@dataclasses.dataclass(frozen=True)
class Curve:
    """A line through points: values in ascending order, and the share, from 0 to 1, at each."""

    name: str
    values: Sequence[float]
    shares: Sequence[float]


@dataclasses.dataclass(frozen=True)
class Chart:
    """A chart. A linear scale begins at the lowest value."""

    title: str
    unit: str
    curves: Sequence[Curve]
    logarithmic: bool = True
    # Values below this are drawn at its place on a logarithmic scale.
    least: float = 0.01


def distribution(name: str, values: Sequence[float], points: int = 200) -> Curve:
    """Returns the cumulative distribution of the values, at that many points."""
    ordered = sorted(values)
    last = len(ordered) - 1
    places = sorted({round(last * number / points) for number in range(points + 1)}) if ordered else []
    return Curve(name, [ordered[place] for place in places], [(place + 1) / len(ordered) for place in places])


def histogram(name: str, values: Sequence[float], low: float, high: float, bins: int = 60) -> Curve:
    """Returns the share of the values in each of that many bins, as steps; values outside are left out."""
    counts = [0] * bins
    for value in values:
        if low <= value < high:
            counts[min(bins - 1, int((value - low) / (high - low) * bins))] += 1
    edges = [low + (high - low) * number / bins for number in range(bins + 1)]
    places = [edge for edge in edges for _ in range(2)][1:-1]
    shares = [count / max(1, len(values)) for count in counts for _ in range(2)]
    return Curve(name, places, shares)


class _Scale:
    """Maps values and shares to positions."""

    def __init__(self, chart: Chart, x_offset: float) -> None:
        self._chart, self._x_offset = chart, x_offset
        values = [value for curve in chart.curves for value in curve.values] or [1.0]
        if chart.logarithmic:
            self.ticks = [
                tick
                for tick in ticks_of(chart.least, max(max(values), 10 * chart.least))
                if math.log10(tick) % 1 in (0.0, 1.0)
            ]
        else:
            low, high = min(values), max(values)
            self.ticks = [low + (high - low or 1.0) * number / 6 for number in range(7)]
        self._low, self._high = self._of(self.ticks[0]), self._of(self.ticks[-1])
        self._high += self._high == self._low
        self.share_max = (
            1.0
            if chart.logarithmic
            else max((share for curve in chart.curves for share in curve.shares), default=1.0) or 1.0
        )

    def _of(self, value: float) -> float:
        return math.log10(max(value, self._chart.least)) if self._chart.logarithmic else value

    def x(self, value: float) -> float:
        """Returns the position of a value."""
        share = (self._of(value) - self._low) / (self._high - self._low)
        return self._x_offset + LEFT + min(1.0, max(0.0, share)) * (WIDTH - LEFT - RIGHT)

    def y(self, share: float) -> float:
        """Returns the position of a share."""
        return HEIGHT - BOTTOM - share / self.share_max * (HEIGHT - TOP - BOTTOM)


def _axes(drawing: Panels, number: int, scale: _Scale) -> None:
    shares = [scale.share_max * step / SHARES for step in range(SHARES + 1)]
    rows = [(scale.y(share), f"{share:.0%}") for share in shares]
    drawing.axes(number, rows, [(scale.x(tick), short(tick)) for tick in scale.ticks], ruled=True)


def render(charts: Sequence[Chart]) -> str:
    """Returns charts side by side, with one legend."""
    names = list(dict.fromkeys(curve.name for chart in charts for curve in chart.curves))
    colours = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(names)}
    titles = [f"{chart.title} ({chart.unit})" for chart in charts]
    drawing = Panels(titles, [(name, {"stroke": colours[name], "stroke_width": 2}) for name in names])
    for number, chart in enumerate(charts):
        scale = _Scale(chart, number * WIDTH)
        _axes(drawing, number, scale)
        for curve in chart.curves:
            places = [(scale.x(value), scale.y(share)) for value, share in zip(curve.values, curve.shares, strict=True)]
            drawing.polyline(places, stroke=colours[curve.name], stroke_width=1.5)
    return drawing.file()
