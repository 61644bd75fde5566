"""The charts of the report."""

import collections.abc
import datetime
import math

from cheetah.page.svg import Drawing
from cheetah.page.units import count
from cheetah.triage.report import bins

WIDTH = 880.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 4.0, 12.0, 24.0
OVERVIEW_BARS_MAX = 150
DETAIL_DAYS = 91
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

Days = collections.abc.Mapping[datetime.date, int]


class Scale:
    """A scale from values to heights. It is logarithmic, and labelled so, if the highest bar would flatten all
    others."""

    def __init__(self, values: collections.abc.Sequence[int], height: float):
        there = sorted(value for value in values if value > 0) or [1]
        self._height = height
        self.highest = there[-1]
        self.logarithmic = self.highest > 40 * there[len(there) // 2]

    def height(self, value: int) -> float:
        """Returns the height of a bar. On a logarithmic scale 1 is half a decade above zero."""
        if value <= 0:
            return 0.0
        if not self.logarithmic:
            return self._height * value / self.ticks()[-1]
        return self._height * (math.log10(value) + 0.5) / (math.log10(self.ticks()[-1]) + 0.5)

    def ticks(self) -> list[int]:
        """Returns round values for labels; the last is the top of the scale."""
        if self.logarithmic:
            return [10**power for power in range(math.ceil(math.log10(self.highest)) + 1)]
        step = 10 ** max(0, math.floor(math.log10(self.highest)))
        for smaller in (step // 5, step // 2, step, step * 2):
            if smaller and self.highest <= smaller * 5:
                step = smaller
                break
        return [step * number for number in range(1, math.ceil(self.highest / step) + 1)]


def overview(days: Days, span: tuple[datetime.date, datetime.date]) -> tuple[Drawing, bool]:
    """Returns activity over the whole span, and whether its scale is logarithmic."""
    unit = bins.unit_for(*span, OVERVIEW_BARS_MAX)
    drawing, scale = _history("activity", bins.bars(days, *span, unit), 190, f"Activity by {unit.name}")
    return drawing, scale.logarithmic


def overview_grid(span: tuple[datetime.date, datetime.date]) -> dict[str, object]:
    """Returns where the bars of the overview are, for selecting some of them."""
    unit = bins.unit_for(*span, OVERVIEW_BARS_MAX)
    starts = [bar.first.isoformat() for bar in bins.bars({}, *span, unit)]
    return {
        "unit": unit.name,
        "left": LEFT / WIDTH,
        "right": 1 - RIGHT / WIDTH,
        "starts": starts,
        "end": span[1].isoformat(),
    }


def detail(days: Days, span: tuple[datetime.date, datetime.date]) -> tuple[Drawing, bool]:
    """Returns activity by day in the last weeks of the span."""
    last = span[1]
    first = max(span[0], last - datetime.timedelta(days=DETAIL_DAYS - 1))
    drawing, scale = _history("recent", bins.bars(days, first, last, bins.DAY), 150, "Activity by day, the last weeks")
    return drawing, scale.logarithmic


def _history(name: str, bars: list[bins.Bar], height: float, title: str) -> tuple[Drawing, Scale]:
    plot = height - TOP - BOTTOM
    scale = Scale([bar.value for bar in bars], plot)
    busiest = max(bars, key=lambda bar: bar.value)
    total = sum(bar.value for bar in bars)
    drawing = Drawing(
        name, WIDTH, height, title,
        f"{count(total)} moments from {bars[0].first} to {bars[-1].last}; most of them, {count(busiest.value)}, {busiest.when}.",
    )  # fmt: skip
    base = height - BOTTOM
    for tick in scale.ticks():
        y = base - scale.height(tick)
        drawing.line(LEFT, y, WIDTH - RIGHT, y)
        drawing.label(LEFT - 8, y + 4, count(tick), "end")
    step = (WIDTH - LEFT - RIGHT) / len(bars)
    gap = min(1.0, step * 0.15)
    for number, bar in enumerate(bars):
        if bar.value:
            tall = max(scale.height(bar.value), 1.5)
            drawing.rectangle(
                LEFT + number * step + gap / 2, base - tall, step - gap, tall, "bar", f"{bar.when}: {count(bar.value)}"
            )
    drawing.line(LEFT, base, WIDTH - RIGHT, base, "axis")
    for number, words in _dates(bars):
        x = LEFT + number * step
        drawing.line(x, base, x, base + 5, "axis")
        drawing.label(x + 4, base + 16, words)
    return drawing, scale


def _dates(bars: list[bins.Bar]) -> collections.abc.Iterator[tuple[int, str]]:
    """Yields the bars to label with dates: as many as fit, at the beginning of years, months or weeks."""
    days = (bars[-1].last - bars[0].first).days
    if days > 900:
        every = math.ceil(days / 365 / 14)
        marks = [(number, str(bar.last.year)) for number, bar in enumerate(bars)
                 if bar.last.year != bars[number - 1].last.year and bar.last.year % every == 0]  # fmt: skip
    elif days > 120:
        every = math.ceil(days / 30 / 9)
        marks = [(number, bar.last.strftime("%b %Y")) for number, bar in enumerate(bars)
                 if bar.last.month != bars[number - 1].last.month and bar.last.month % every == 0]  # fmt: skip
    elif days > 21:
        marks = [(number, bar.first.strftime("%-d %b %Y" if bar.first.month == 1 and bar.first.day < 8 else "%-d %b"))
                 for number, bar in enumerate(bars) if bar.first.weekday() == 0 and bar.first.isocalendar().week % 2]  # fmt: skip
    else:
        marks = [(number, bar.first.strftime("%-d %b")) for number, bar in enumerate(bars) if number % 3 == 0]
    far_enough = [mark for mark in marks if mark[0] / len(bars) < 0.95]
    yield from far_enough or [(0, bars[0].first.isoformat())]


def hours(table: collections.abc.Sequence[collections.abc.Sequence[int]]) -> Drawing:
    """Returns activity by weekday and hour: the darker, the more."""
    most = max((value for row in table for value in row), default=0)
    at = max(((value, day, hour) for day, row in enumerate(table) for hour, value in enumerate(row)), default=(0, 0, 0))
    left, top, wide, tall = 84.0, 4.0, 33.0, 22.0
    drawing = Drawing(
        "hours", left + 24 * wide + 20, top + 7 * tall + 22, "Activity by weekday and hour, UTC",
        f"Most, {count(at[0])} moments, on {WEEKDAYS[at[1]]}s between {at[2]}:00 and {at[2] + 1}:00." if most else "None.",
    )  # fmt: skip
    for day, row in enumerate(table):
        drawing.label(left - 10, top + day * tall + tall / 2 + 4, WEEKDAYS[day], "end")
        for hour, value in enumerate(row):
            # Seven steps; the eye compares areas, hence the root.
            shade = math.ceil(7 * math.sqrt(value / most)) if value else 0
            drawing.rectangle(
                left + hour * wide, top + day * tall, wide - 1.5, tall - 1.5, f"heat heat{shade}",
                f"{WEEKDAYS[day]}s, {hour}:00 to {hour + 1}:00: {count(value)}",
            )  # fmt: skip
    for hour in range(0, 25, 3):
        drawing.label(
            left + hour * wide - (0.75 if hour else 0), top + 7 * tall + 16, f"{hour}:00", "middle" if hour else "start"
        )
    return drawing
