"""The charts of the report."""

import math
from collections.abc import Iterable, Sequence

from markupsafe import Markup

from cheetah.bench.cells import Cell, Ratio, Storage, Table
from cheetah.bench.report.number import NAME_CHARS_MAX, exact
from cheetah.bench.sheet import ratio_text
from cheetah.page.svg import Drawing
from cheetah.page.visible import plain

DOTS_MAX = 40
"""The maximum number of repetitions drawn for one cell."""
WIDTH, LEFT, RIGHT, TOP = 440.0, 118.0, 46.0, 6.0
ROW, BAR = 13.0, 8.0
LABEL_CHARS_MAX = 18
RATIO_MAX = 4096.0


class Octaves:
    """A logarithmic scale: twice as fast is as far from 1 as half as fast."""

    def __init__(self, ratios: Iterable[Ratio], left: float, right: float) -> None:
        bounds = [
            min(max(bound, 1 / RATIO_MAX), RATIO_MAX) for one in ratios for bound in (one.low, one.value, one.high)
        ]
        self.low = math.floor(min([-0.4, *(math.log2(bound) - 0.05 for bound in bounds)]) * 2) / 2
        self.high = math.ceil(max([1.0, *(math.log2(bound) + 0.05 for bound in bounds)]) * 2) / 2
        self._left, self._right = left, right

    def x(self, ratio: float) -> float:
        """Returns the position of a ratio."""
        power = math.log2(min(max(ratio, 1 / RATIO_MAX), RATIO_MAX))
        return self._left + (self._right - self._left) * (power - self.low) / (self.high - self.low)

    def ticks(self) -> list[tuple[float, str]]:
        """Returns round ratios and their labels."""
        every = max(1, math.ceil((self.high - self.low) / 7))
        powers = [power for power in range(math.ceil(self.low), math.floor(self.high) + 1) if power % every == 0]
        return [(2.0**power, f"{2**power}×" if power >= 0 else f"1/{2**-power}×") for power in powers]


def speed_ups(storage: Storage, tables: Sequence[Table]) -> list[tuple[str, Drawing]]:
    """Returns a chart for each target but the baseline: its speed-up in every step, on a common scale."""
    found = {
        (step, table.state, target): ratio
        for table in tables for step in table.steps for target in storage.targets
        if (ratio := storage.ratio(storage.cell(step, table.state, target)))
    }  # fmt: skip
    scale = Octaves(found.values(), LEFT, WIDTH - RIGHT)
    steps = list(dict.fromkeys(step for table in tables for step in table.steps))
    states = [table.state for table in tables]
    return [
        (target, _profile(storage, scale, number, target, steps, states))
        for number, target in enumerate(storage.targets)
        if target != storage.baseline and any(of == target for _, _, of in found)
    ]


def _profile(
    storage: Storage, scale: Octaves, number: int, target: str, steps: Sequence[str], states: Sequence[str]
) -> Drawing:
    tall = ROW * len(states) + 5
    base = TOP + tall * len(steps)
    shown, beside = plain(target, NAME_CHARS_MAX), plain(storage.baseline, NAME_CHARS_MAX)
    drawing = Drawing(
        f"speed-up-{number}", WIDTH, base + 22, f"Speed-up of {shown}",
        f"How many times as fast as {beside}, for each step. The figures are in the table above.",
    )  # fmt: skip
    for ratio, words in scale.ticks():
        drawing.line(scale.x(ratio), TOP - 4, scale.x(ratio), base, "rule")
        drawing.label(scale.x(ratio), base + 14, words, "middle")
    for place, step in enumerate(steps):
        y = TOP + place * tall
        drawing.label(LEFT - 10, y + tall / 2 + 2, _short(storage.title(step)), "end")
        for index, state in enumerate(states):
            cell = storage.cell(step, state, target)
            if cell.samples:
                _lollipop(drawing, scale, cell, storage.ratio(cell), y + 2 + index * ROW, state, index)
    drawing.line(scale.x(1), TOP - 4, scale.x(1), base, "axis")
    return drawing


def _lollipop(
    drawing: Drawing, scale: Octaves, cell: Cell, ratio: Ratio | None, y: float, state: str, index: int
) -> None:
    if ratio is None:
        if cell.word:
            drawing.label(scale.x(1) + 5, y + BAR + 1, cell.word)
        return
    inconclusive = ratio.uncertain or ratio.once
    kind = "unsure" if inconclusive else "faster" if ratio.value > 1 else "slower"
    begin, end = sorted((scale.x(1), scale.x(ratio.value)))
    shown = ratio_text(ratio)
    drawing.add(
        "rect", tip=f"caches {state}: {shown}, between {ratio.low:.2f} and {ratio.high:.2f}", x=begin, y=y, height=BAR,
        width=max(end - begin, 0.8), class_=f"{kind} {'second' if index else 'first'}", **_told(cell, "ratio", ratio.value),
    )  # fmt: skip
    if not ratio.once:
        drawing.line(scale.x(ratio.low), y + BAR / 2, scale.x(ratio.high), y + BAR / 2, "whisker")
    drawing.add("text", shown, x=WIDTH - 2, y=y + BAR + 0.5, text_anchor="end", class_="second" if index else "first")


def strip(cell: Cell, most: float, baseline: bool) -> Markup:
    """Returns a bar with the length of the median relative to `most`, with a dot for each repetition."""
    if not cell.values or not most:
        return Markup("")
    kind = "base" if baseline else "bar"
    parts = [Markup('<rect class="{}" y="25%" width="{:.2f}%" height="50%"/>').format(kind, 100 * cell.median / most)]
    values = cell.values
    if len(values) > DOTS_MAX:
        values = tuple(values[round(number * (len(values) - 1) / (DOTS_MAX - 1))] for number in range(DOTS_MAX))
    for number, value in enumerate(values):
        parts.append(
            Markup('<circle class="dot" cx="{:.2f}%" cy="{:.0f}%" r="2" data-value="{}"/>').format(
                100 * value / most, 100 * (number + 0.5) / len(values), exact(value)
            )
        )
    return Markup(
        '<svg class="strip-of-dots" role="img" aria-label="{} of {} repetitions drawn" data-figure="{}" data-target="{}">{}</svg>'
    ).format(
        len(values), len(cell.values), plain(cell.figure, NAME_CHARS_MAX), plain(cell.target, NAME_CHARS_MAX), Markup("").join(parts)
    )  # fmt: skip


def _told(cell: Cell, stat: str, value: float) -> dict[str, str]:
    return {
        "data_figure": plain(cell.figure, NAME_CHARS_MAX), "data_target": plain(cell.target, NAME_CHARS_MAX),
        "data_stat": stat, "data_value": exact(value),
    }  # fmt: skip


def _short(title: str) -> str:
    shown = plain(title, 200)
    return shown if len(shown) <= LABEL_CHARS_MAX else f"{shown[: LABEL_CHARS_MAX - 1]}…"
