"""Charts side by side in one SVG file, with one legend below them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from cheetah.page.svg import Drawing

WIDTH, HEIGHT = 460, 320
LEFT, RIGHT, TOP, BOTTOM = 62, 16, 40, 56
LEGEND_COLUMNS, LEGEND_ROW = 3, 18
# Distinguishable by the colour-blind (Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#f0e442")

Stroke = Mapping[str, object]
"""The attributes of a line."""


def ticks_of(low: float, high: float) -> list[float]:
    """Returns 1, 2 and 5 times powers of ten around the values."""
    ticks = []
    for exponent in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        ticks += [step * 10.0**exponent for step in (1, 2, 5)]
    below = max((tick for tick in ticks if tick <= low), default=ticks[0])
    above = min((tick for tick in ticks if tick >= high), default=ticks[-1])
    return [tick for tick in ticks if below <= tick <= above]


class Panels(Drawing):
    """A drawing of charts with these titles; `legend` has the name and the stroke of each line."""

    def __init__(self, titles: Sequence[str], legend: Sequence[tuple[str, Stroke]]) -> None:
        width = WIDTH * len(titles)
        rows = -(-len(legend) // LEGEND_COLUMNS)
        super().__init__(
            "charts", width, HEIGHT + 12 + LEGEND_ROW * rows, "; ".join(titles), "The figures are in a table."
        )
        for number, title in enumerate(titles):
            self.add("text", title, x=(number + 0.5) * WIDTH, y=20, text_anchor="middle", font_weight="bold")
        for number, (name, stroke) in enumerate(legend):
            row, column = divmod(number, LEGEND_COLUMNS)
            x, y = 20 + column * max(150, width // LEGEND_COLUMNS), HEIGHT + 14 + row * LEGEND_ROW
            self.polyline([(x, y - 4), (x + 28, y - 4)], **stroke)
            self.label(x + 34, y, name)

    def axes(
        self, number: int, rows: Sequence[tuple[float, str]], columns: Sequence[tuple[float, str]], ruled: bool = False
    ) -> None:
        """Draws the axes of a chart: labels with their places, a rule across for each row, and with `ruled` one upwards
        for each column."""
        left, base = number * WIDTH + LEFT, HEIGHT - BOTTOM
        for y, words in rows:
            self.polyline([(left, y), ((number + 1) * WIDTH - RIGHT, y)], stroke="#ddd")
            self.label(left - 6, y + 4, words, "end")
        for x, words in columns:
            if ruled:
                self.polyline([(x, base), (x, TOP)], stroke="#eee")
            self.label(x, base + 18, words, "middle")
