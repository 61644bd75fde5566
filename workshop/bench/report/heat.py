"""SVG heat maps of the matrix: sizes of records across, sizes of files upwards, the rate as colour and in words."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from bench.report.panels import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Panels
from cheetah import sizes
from cheetah.bench.units import MIB, short

# From slow to fast; readable in grey, too.
SHADES = ("#fff7ec", "#fee8c8", "#fdd49e", "#fdbb84", "#fc8d59", "#ef6548", "#d7301f", "#990000")
DARK_FROM = 5


@dataclasses.dataclass(frozen=True)
class HeatMap:
    """A map: by (file, record), as in the keys of the steps, the bytes a second."""

    title: str
    rates: Mapping[tuple[str, str], float]


def _sorted(names: set[str]) -> list[str]:
    return sorted(names, key=sizes.parse)


def shade(rate: float, least: float, most: float) -> int:
    """Returns the place of a rate among the shades, on a logarithmic scale."""
    if rate <= 0 or most <= least:
        return 0
    share = (math.log(rate) - math.log(least)) / (math.log(most) - math.log(least))
    return min(len(SHADES) - 1, max(0, int(share * len(SHADES))))


def render(maps: Sequence[HeatMap]) -> str:
    """Returns maps side by side, with the same colours for the same rates."""
    drawing = Panels([f"{one.title} (MiB/s)" for one in maps], [])
    rates = [rate for one in maps for rate in one.rates.values() if rate > 0] or [1.0]
    for number, one in enumerate(maps):
        _draw(drawing, number, one, min(rates), max(rates))
    return drawing.file()


def _draw(drawing: Panels, number: int, one: HeatMap, least: float, most: float) -> None:
    files, records = _sorted({file for file, _ in one.rates}), _sorted({record for _, record in one.rates})
    width = (WIDTH - LEFT - RIGHT) / max(1, len(records))
    height = (HEIGHT - TOP - BOTTOM) / max(1, len(files))
    left, base = number * WIDTH + LEFT, HEIGHT - BOTTOM
    for row, file in enumerate(files):
        drawing.label(left - 6, base - (row + 0.5) * height + 4, file, "end")
        for column, record in enumerate(records):
            rate = one.rates.get((file, record))
            if rate is None:
                continue
            place, x, y = shade(rate, least, most), left + column * width, base - (row + 1) * height
            drawing.add("rect", x=x, y=y, width=width, height=height, fill=SHADES[place], stroke="#fff")
            colour = "#fff" if place >= DARK_FROM else "#000"
            words = short(rate / MIB)
            drawing.add(
                "text", words, x=x + width / 2, y=y + height / 2 + 4, text_anchor="middle", font_size=9, fill=colour
            )
    for column, record in enumerate(records):
        drawing.label(left + (column + 0.5) * width, base + 18, record, "middle")
