"""The chart of the summary: for each part, how far each figure is from its bar."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence

from cheetah.page.svg import Drawing

MET, MISSED = "#009e73", "#d55e00"
LEFT, RIGHT, TOP, ROW, WIDTH = 310, 20, 34, 16, 960
# Beyond these, a mark stands at the edge.
LOW, HIGH = 0.1, 100.0
TICKS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 100.0)
# A row of a page that has a bar: the ratio, whether more is better, the bar, whether it is met.
BARRED = re.compile(
    r"\| \*\*(?P<ratio>[\d.]+)\*\* \[[^\]]*\] \| (?P<sign>[≥≤]) (?P<bar>[\d.e-]+) \| (?P<met>yes|\*\*no\*\*) \|"
)


@dataclasses.dataclass(frozen=True)
class Mark:
    """A figure as a multiple of its bar, above 1 if it is met; a page rounds its ratios, so that 1 may be either."""

    value: float
    is_met: bool


@dataclasses.dataclass(frozen=True)
class Strip:
    """A row of the chart: a part, and its figures that have a bar."""

    title: str
    marks: Sequence[Mark]


def marks_of(page: str) -> list[Mark]:
    """Returns the figures of a page that have a bar above zero. Of a ratio that is rounded to zero, less is infinitely better."""
    marks = []
    for row in BARRED.finditer(page):
        ratio, bar = float(row["ratio"]), float(row["bar"])
        if bar > 0:
            inverse = bar / ratio if ratio else math.inf
            marks.append(Mark(ratio / bar if row["sign"] == "≥" else inverse, row["met"] == "yes"))
    return marks


def render(strips: Sequence[Strip]) -> str:
    """Returns the chart, with a logarithmic axis."""
    height = TOP + ROW * len(strips) + 30
    title = "Each figure as a multiple of its bar: to the right of 1 it is met"
    drawing = Drawing("overview", WIDTH, height, title, "The figures are in the tables of each page.")
    drawing.label(LEFT, 18, title)
    base = TOP + ROW * len(strips)
    for tick in TICKS:
        stroke = "#888" if tick == 1 else "#ddd"
        drawing.polyline([(_x(tick), TOP), (_x(tick), base)], stroke=stroke)
        drawing.label(_x(tick), base + 16, f"{tick:g}", "middle")
    for number, strip in enumerate(strips):
        y = TOP + ROW * (number + 0.5)
        drawing.label(LEFT - 8, y + 4, _shortened(strip.title), "end")
        for mark in strip.marks:
            fill = MET if mark.is_met else MISSED
            drawing.add("circle", cx=_x(mark.value), cy=y, r=3.5, fill=fill, fill_opacity=0.6)
    return drawing.file()


def _x(value: float) -> float:
    share = math.log(min(max(value, LOW), HIGH) / LOW) / math.log(HIGH / LOW)
    return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)


def _shortened(title: str) -> str:
    plain = title.replace("`", "")
    return plain if len(plain) <= 42 else plain[:41] + "…"
