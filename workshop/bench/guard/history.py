"""The guard's history: one row a run in `workshop/bench/guard/history.tsv`, and a plot of it."""

from __future__ import annotations

import csv
import datetime
import os
import statistics
from collections.abc import Iterable

from bench.report import plot
from bench.tools import cheetah, versions
from cheetah.bench.figure import Figure
from cheetah.bench.units import short

HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = os.path.join(HERE, "history.tsv")
PLOT = os.path.join(os.path.dirname(HERE), "plots", "guard.svg")
# The columns before those of the figures.
HEAD = ("date", "commit", "processor")


def table(figures: Iterable[Figure]) -> str:
    """Returns the table of a run, as Markdown."""
    lines = ["| figure | unit | this build | earlier | gain |", "|---|---|---|---|---|"]
    for figure in figures:
        (ours, theirs), unit = figure.samples, figure.unit
        lines.append(
            f"| {figure.what} | {unit} | {_spread(figure, ours)} | {_spread(figure, theirs)} | {gain_of(figure):.2f} |"
        )
    return "\n".join(lines)


def _spread(figure: Figure, name: str) -> str:
    samples = figure.samples[name]
    return f"{short(figure.median(name))} [{short(min(samples))} – {short(max(samples))}]"


def gain_of(figure: Figure) -> float:
    """Returns the speed of this build as a multiple of the earlier one's: above 1 is better, whatever the unit."""
    ratio = figure.ratio()
    if not ratio:
        return 1.0
    return ratio if figure.better == "higher" else 1 / ratio


def add(figures: Iterable[Figure]) -> None:
    """Adds a run to the table in the repository, and draws the plot again."""
    rows = read()
    gains = {figure.id.removeprefix("guard/"): f"{gain_of(figure):.3f}" for figure in figures}
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    rows.append({"date": today, "commit": cheetah.commit(), "processor": versions.describe()["processor"], **gains})
    keys = [*HEAD, *dict.fromkeys(key for row in rows for key in row if key not in HEAD)]
    with open(TABLE, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, keys, restval="", delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    with open(PLOT, "w", encoding="utf-8") as file:
        file.write(drawn(rows))


def read() -> list[dict[str, str]]:
    """Returns the runs so far, oldest first."""
    try:
        with open(TABLE, encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file, delimiter="\t"))
    except FileNotFoundError:
        return []


def drawn(rows: list[dict[str, str]]) -> str:
    """Returns the plot: for each run the median of its gains, and the range from the least to the greatest."""
    points = []
    for row in rows:
        gains = sorted(float(gain) for key, gain in row.items() if key not in HEAD and gain)
        points.append(plot.Point(statistics.median(gains), gains[0], gains[-1]) if gains else None)
    shown = [f"{row['date'][5:]} {row['commit'][:7]}" for row in rows]
    series = [plot.Series("median of all figures, from the least to the greatest", points, 0)]
    return plot.render([plot.Panel("This build beside the release before it", "gain", shown, series)])
