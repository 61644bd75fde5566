"""The tables and plots of `readahead`: elapsed time and throughput by size and by workers."""

from __future__ import annotations

import os
import re
import statistics
from collections.abc import Sequence

from bench.report import plot
from bench.report.plot import Panel, Point, Series
from cheetah.bench.figure import Figure
from cheetah.bench.units import short

BENCH = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PLOTS_DIR = os.path.join(BENCH, "plots")
# How the measurements compare with earlier work, in words.
COMPARISON = os.path.join(BENCH, "prefetching.md")
ID = re.compile(r"readahead/(?P<what>sizes|workers)/(?P<delay>[^/]+)/(?P<metric>seconds|rate)")
METRICS = {"seconds": ("elapsed", "s"), "rate": ("throughput", "MiB/s")}

NOTHING = "a cache alone"
AT_ONCE = re.compile(r"(?P<way>.*), (?P<count>\d+) at once")
FIXED = re.compile(r"(?P<way>read-ahead|read-behind) (?P<size>.*)")


def ahead(size: str) -> str:
    """Returns the name of a read-ahead of that size."""
    return f"read-ahead {size}"


def behind(size: str) -> str:
    """Returns the name of a read-behind of that size."""
    return f"read-behind {size}"


def at_once(way: str, count: int) -> str:
    """Returns the name of that many workers with a way of attaching."""
    return f"{way}, {count} at once"


def _by_metric(figures: Sequence[Figure], what: str) -> dict[str, dict[str, Figure]]:
    """Returns the figures by delay, for each metric."""
    found: dict[str, dict[str, Figure]] = {"seconds": {}, "rate": {}}
    for figure in figures:
        match = ID.fullmatch(figure.id)
        if match and match["what"] == what:
            found[match["metric"]][match["delay"]] = figure
    return found


def _table(by_metric: dict[str, dict[str, Figure]]) -> list[str]:
    delays = list(by_metric["seconds"])
    heads = [f"{METRICS[metric][0]}, {delay} ({METRICS[metric][1]})" for metric in METRICS for delay in delays]
    lines = [f"| | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    names = list(dict.fromkeys(name for figure in by_metric["seconds"].values() for name in figure.samples))
    for name in names:
        cells = [_cell(by_metric[metric][delay], name) for metric in METRICS for delay in delays]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _cell(figure: Figure, name: str) -> str:
    values = figure.samples.get(name)
    if not values:
        return ""
    text = f"{short(statistics.median(values))} [{short(min(values))} – {short(max(values))}]"
    best = min if figure.better == "lower" else max
    others = [statistics.median(samples) for samples in figure.samples.values() if samples]
    return f"**{text}**" if statistics.median(values) == best(others) else text


def _point(figure: Figure, name: str) -> Point | None:
    values = figure.samples.get(name)
    return Point(statistics.median(values), min(values), max(values)) if values else None


def _size_panel(by_delay: dict[str, Figure], metric: str, ours: str) -> Panel:
    """x: none, the fixed sizes, ours; a colour per delay, a dash per direction."""
    names = [name for figure in by_delay.values() for name in figure.samples]
    found = [match["size"] for name in names if (match := FIXED.fullmatch(name))]
    fixed = list(dict.fromkeys(found))
    series = []
    for group, (delay, figure) in enumerate(by_delay.items()):
        for style, direction in enumerate((ahead, behind)):
            names = [NOTHING, *(direction(size) for size in fixed), ours]
            points = [_point(figure, name) for name in names]
            series.append(Series(f"{direction('').strip()}, {delay}", points, group, style))
    title, unit = METRICS[metric]
    return Panel(f"Prefetching: {title}", unit, ["0", *(size.removesuffix("iB") for size in fixed), "ours"], series)


def _worker_panel(by_delay: dict[str, Figure], metric: str) -> Panel:
    """x: workers; a colour per delay, a dash per way of attaching."""
    found = [match for figure in by_delay.values() for name in figure.samples if (match := AT_ONCE.fullmatch(name))]
    counts = list(dict.fromkeys(int(match["count"]) for match in found))
    ways = list(dict.fromkeys(match["way"] for match in found))
    series = [
        Series(f"{way}, {delay}", [_point(figure, at_once(way, count)) for count in counts], group, style)
        for group, (delay, figure) in enumerate(by_delay.items())
        for style, way in enumerate(ways)
    ]
    title, unit = METRICS[metric]
    return Panel(f"Workers: {title}", unit, [str(count) for count in counts], series)


def report(figures: Sequence[Figure]) -> list[str]:
    """Returns the tables as lines; writes the plots beside the report."""
    lines = []
    os.makedirs(PLOTS_DIR, exist_ok=True)
    for what, title in (("sizes", "By size of read-ahead and read-behind"), ("workers", "By files extracted at once")):
        by_metric = _by_metric(figures, what)
        if not by_metric["seconds"]:
            continue
        if what == "sizes":
            ours = next(iter(by_metric["seconds"].values())).ours or ""
            panels = [_size_panel(by_metric[metric], metric, ours) for metric in METRICS]
        else:
            panels = [_worker_panel(by_metric[metric], metric) for metric in METRICS]
        with open(os.path.join(PLOTS_DIR, f"{what}.svg"), "w", encoding="utf-8") as file:
            file.write(plot.render(panels))
        lines += [f"{title}:", "", *_table(by_metric), "", f"![{title}](plots/{what}.svg)", ""]
    with open(COMPARISON, encoding="utf-8") as file:
        return [*lines, *file.read().splitlines(), ""]
