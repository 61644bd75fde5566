"""The tables and charts of the documents' experiments, with the documents' own figures beside ours."""

from __future__ import annotations

import os
import re
import statistics
from collections.abc import Mapping, Sequence

from bench.report import bars, heat, plot
from bench.report.bars import Bars
from bench.report.heat import HeatMap
from bench.report.plot import Panel, Point, Series
from bench.report.prefetching import PLOTS_DIR
from bench.report.storage_tables import STEPS, THEIR_TIMES, THEIRS
from cheetah.bench.figure import Figure
from cheetah.bench.sheet import spread
from cheetah.bench.units import short

# Shares of the link: of the thesis's Cheetah, which counts headers, and of NRD, which it compares itself with.
THESIS_SHARES = {"write": 0.74, "rewrite": 0.74, "read": 0.71, "reread": 0.71}
NRD_SHARES = {"write": 0.25, "read": 0.22}
LINK_BYTES_PER_S = {"1gbit": 1e9 / 8, "100mbit": 1e8 / 8}
# Table 5.1 of the thesis, of its disk and of its drive, in KiB/s as IOzone prints them.
THESIS_KIB_PER_S = {
    "write": (24_026, 92_309),
    "rewrite": (25_788, 92_628),
    "read": (26_568, 88_768),
    "reread": (26_487, 88_357),
    "random-read": (396, 9_065),
    "random-write": (495, 10_501),
    "backward": (5_071, 18_216),
    "strided": (5_243, 7_834),
}
THESIS_DISK, DRIVE = "IDE disk (model)", "drive"
# The case of the thesis, in the ids of figures.
OF_THE_THESIS = "1gbit/6/512MiB/4KiB/buffered"
TABLE = re.compile(r"thesis-table/(?P<case>[^/]+/\d+/\w+/\w+/\w+)/(?P<row>[\w-]+)/(?P<beside>.*)")
TOOL = re.compile(r"thesis-tools/(?P<image>[^/]+)/(?P<tool>[\w-]+)/(?P<disk>.*)")
POLICY = re.compile(r"read-ahead/(?P<rtt>[^/]+)/(?P<pattern>\w+)/(?:both|alone)/rate")
FIXED = re.compile(r"fixed (?P<size>\w+)")
CELL = re.compile(r"iozone/(?:matrix|lab)/fio/(?P<operation>[\w-]+)/(?P<file>\w+)/(?P<record>\w+)/\w+")
UNIT = re.compile(r"RAID 0, (\S+ KiB)")
FILE_SYSTEM = re.compile(r"filesystems/(?P<run>disk|drive)/(?P<step>\w+)/cold")
ARRAY = re.compile(r"arrays/(?P<run>\d+)/(?P<step>\w+)/cold")
CACHED = "cached"
# The fastest cell of 2009, which its author attributes to caches.
CACHED_2009 = "4 036 MB/s"
# Groups of rows as in the thesis's figures 5.2, 5.3 and 5.4.
GROUPS = {
    "Figure 5.2": ("write", "rewrite", "read", "reread"),
    "Figure 5.3": ("random-read", "random-write"),
    "Figure 5.4": ("backward", "strided"),
}


def point(values: Sequence[float]) -> Point:
    """Returns the median and the spread of samples."""
    return Point(statistics.median(values), min(values), max(values))


def drawn(name: str, title: str, svg: str) -> list[str]:
    """Writes a chart beside the report; returns the lines that show it."""
    os.makedirs(PLOTS_DIR, exist_ok=True)
    with open(os.path.join(PLOTS_DIR, f"{name}.svg"), "w", encoding="utf-8") as file:
        file.write(svg)
    return [f"![{title}](plots/{name}.svg)", ""]


def thesis_table(figures: Sequence[Figure]) -> list[str]:
    """Returns figures 5.2 to 5.4 of the thesis's case, and the shares of the link."""
    found = [(match, figure) for figure in figures if (match := TABLE.fullmatch(figure.id))]
    if not found:
        return []
    cases = [match["case"] for match, _ in found]
    first = OF_THE_THESIS if OF_THE_THESIS in cases else cases[0]
    rows: dict[str, dict[str, Point]] = {}
    for match, figure in found:
        if match["case"] == first and match["beside"] != "link":
            rows.setdefault(match["row"], {}).update({name: point(got) for name, got in figure.samples.items()})
    charts = [
        Bars(title, "MiB/s", {row: rows[row] for row in chosen if row in rows}) for title, chosen in GROUPS.items()
    ]
    lines = drawn("thesis-table", "Table 5.1 as in figures 5.2 to 5.4", bars.render(charts))
    lines = [*_beside_the_thesis(rows), *lines]
    return lines + _shares([(match, figure) for match, figure in found if match["beside"] == "link"])


def _beside_the_thesis(rows: Mapping[str, Mapping[str, Point]]) -> list[str]:
    """Returns the rates of the thesis's case beside those of the thesis."""
    lines = ["Medians beside the thesis's table 5.1, MiB/s:", ""]
    lines += [f"| | drive | {THESIS_DISK} | ratio | the thesis: drive | disk | ratio |", "|---" + "|---:" * 6 + "|"]
    for row, rates in rows.items():
        if not {DRIVE, THESIS_DISK} <= rates.keys():
            continue
        ours, disk = rates[DRIVE].middle, rates[THESIS_DISK].middle
        their_disk, theirs = (kib / 1024 for kib in THESIS_KIB_PER_S[row])
        cells = [short(ours), short(disk), f"{ours / disk:.2f}" if disk else ""]
        cells += [short(theirs), short(their_disk), f"{theirs / their_disk:.2f}"]
        lines.append(f"| {row.replace('-', ' ')} | {' | '.join(cells)} |")
    return [*lines, ""]


def _shares(found: Sequence[tuple[re.Match[str], Figure]]) -> list[str]:
    lines = ["What passes the link, as a share of its rate (payload of a file, without any header):", ""]
    lines += ["| | ours | the thesis | NRD, as the thesis derives it |", "|---|---:|---:|---:|"]
    for match, figure in found:
        network, row = match["case"].split("/")[0], match["row"]
        share = figure.median(figure.ours or "") * (1 << 20) / LINK_BYTES_PER_S[network]
        theirs = [f"{shares[row]:.0%}" if row in shares else "" for shares in (THESIS_SHARES, NRD_SHARES)]
        lines.append(f"| {figure.what} | {share:.0%} | {' | '.join(theirs)} |")
    return [*lines, ""]


def thesis_tools(figures: Sequence[Figure]) -> list[str]:
    """Returns figures 5.5 to 5.8: a chart for each image."""
    images: dict[str, dict[str, dict[str, Point]]] = {}
    for figure in figures:
        if match := TOOL.fullmatch(figure.id):
            group = images.setdefault(match["image"], {}).setdefault(match["tool"], {})
            group.update({name: point(got) for name, got in figure.samples.items()})
    charts = [Bars(image, "s", groups) for image, groups in images.items()]
    return drawn("thesis-tools", "Applications as in figures 5.5 to 5.8", bars.render(charts)) if charts else []


def read_ahead(figures: Sequence[Figure]) -> list[str]:
    """Returns a table of all policies for each delay, and the rate by the size of a fixed read-ahead."""
    by_rtt: dict[str, dict[str, dict[str, Point]]] = {}
    for figure in figures:
        if match := POLICY.fullmatch(figure.id):
            of_pattern = by_rtt.setdefault(match["rtt"], {}).setdefault(match["pattern"], {})
            of_pattern.update({name: point(got) for name, got in figure.samples.items()})
    lines, panels = [], []
    for rtt, patterns in by_rtt.items():
        names = list(dict.fromkeys(name for points in patterns.values() for name in points))
        lines += [f"{rtt} of round trip (MiB/s):", "", f"| | {' | '.join(patterns)} |"]
        lines.append("|---" + "|---:" * len(patterns) + "|")
        for name in names:
            cells = (short(points[name].middle) if name in points else "" for points in patterns.values())
            lines.append(f"| {name} | {' | '.join(cells)} |")
        lines.append("")
        fixed = [name for name in names if FIXED.fullmatch(name)]
        series = [
            Series(pattern, [points.get(name) for name in fixed], number)
            for number, (pattern, points) in enumerate(patterns.items())
        ]
        labels = [name.removeprefix("fixed ").removesuffix("iB") for name in fixed]
        panels.append(Panel(f"Fixed read-ahead, {rtt}", "MiB/s", labels, series))
    return lines + (
        drawn("read-ahead", "The rate by the size of the read-ahead", plot.render(panels)) if panels else []
    )


def arrays(figures: Sequence[Figure]) -> list[str]:
    """Returns the speed-ups over one disk, beside those of 2009."""
    ours: dict[str, dict[str, float]] = {}
    for figure in figures:
        match = ARRAY.fullmatch(figure.id)
        for name in figure.samples if match else ():
            ratio = figure.speed_up(name)
            if match and name != figure.baseline and ratio is not None:
                ours.setdefault(name, {})[match["step"]] = ratio
    if not ours:
        return []
    lines = [*_times(figures), "Speed-ups over one disk, medians; below them those of 2009:", ""]
    lines += [f"| | {' | '.join(STEPS)} |", "|---" + "|---:" * len(STEPS) + "|"]
    for name, steps in ours.items():
        lines.append(f"| {name} | {' | '.join(f'{steps[step]:.2f}' if step in steps else '' for step in STEPS)} |")
    lines += [f"| 2009: {name} | {' | '.join(f'{ratio:.2f}' for ratio in ratios)} |" for name, ratios in THEIRS]
    return [*lines, "", *_units(ours), ""]


def _times(figures: Sequence[Figure]) -> list[str]:
    """Returns the times, above those of 2009; the one disk, which each run measures, has all its rounds."""
    seconds: dict[str, dict[str, list[float]]] = {}
    for figure in figures:
        if match := ARRAY.fullmatch(figure.id):
            for name, samples in figure.samples.items():
                seconds.setdefault(name, {}).setdefault(match["step"], []).extend(samples)
    lines = ["Times, medians [lowest – highest], in seconds:", "", f"| | {' | '.join(STEPS)} |"]
    lines.append("|---" + "|---:" * len(STEPS) + "|")
    for name, steps in seconds.items():
        lines.append(f"| {name} | {' | '.join(spread(steps[step]) if step in steps else '' for step in STEPS)} |")
    for name, times in THEIR_TIMES:
        lines.append(f"| 2009, image of 38 GB: {name} | {' | '.join(map(short, times))} |")
    return [*lines, ""]


def _units(speed_ups: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Returns which stripe unit is the fastest in each step; 64 KiB was the best overall in 2009."""
    found = []
    for step in STEPS:
        of_step = {
            match[1]: steps[step] for name, steps in speed_ups.items() if (match := UNIT.match(name)) and step in steps
        }
        if len(of_step) > 1:
            found.append(f"{step} {max(of_step, key=lambda unit: of_step[unit])}")
    return [f"The fastest stripe unit of RAID 0: {', '.join(found)}."] if found else []


def filesystems(figures: Sequence[Figure]) -> list[str]:
    """Returns a table for each run: a row for each file system, the fastest of each step in bold."""
    tables: dict[str, dict[str, dict[str, float]]] = {}
    for figure in figures:
        if match := FILE_SYSTEM.fullmatch(figure.id):
            for name in figure.samples:
                kind = name.removesuffix(" (model)").split()[-1]
                step = tables.setdefault(match["run"], {}).setdefault(match["step"], {})
                step[kind] = figure.median(name)
    lines = []
    for run, steps in tables.items():
        kinds = list(dict.fromkeys(kind for times in steps.values() for kind in times))
        lines += [
            f"On the {run}, medians in seconds:",
            "",
            f"| | {' | '.join(steps)} |",
            "|---" + "|---:" * len(steps) + "|",
        ]
        for kind in kinds:
            cells = (_fastest_bold(kind, times) for times in steps.values())
            lines.append(f"| {kind} | {' | '.join(cells)} |")
        lines.append("")
    return lines


def _fastest_bold(kind: str, times: Mapping[str, float]) -> str:
    if kind not in times:
        return ""
    return f"**{short(times[kind])}**" if times[kind] == min(times.values()) else short(times[kind])


def iozone(figures: Sequence[Figure]) -> list[str]:
    """Returns a row of heat maps for each order of access, one for each target."""
    rates: dict[str, dict[str, dict[tuple[str, str], float]]] = {}
    for figure in figures:
        if match := CELL.fullmatch(figure.id):
            for name in figure.samples:
                cells = rates.setdefault(match["operation"], {}).setdefault(name, {})
                cells[match["file"], match["record"]] = figure.median(name)
    lines = []
    for operation, targets in rates.items():
        maps = [HeatMap(f"{operation}, {name}", cells) for name, cells in targets.items()]
        lines += drawn(f"iozone-{operation}", f"The matrix: {operation}", heat.render(maps))
    return lines + _cached(rates.get(CACHED, {}))


def _cached(targets: Mapping[str, Mapping[tuple[str, str], float]]) -> list[str]:
    """Returns the fastest reads from the page cache, which no storage can exceed, beside the fastest cell of 2009."""
    rates = [rate for cells in targets.values() for rate in cells.values()]
    if not rates:
        return []
    said = f"The fastest reads from the page cache (`{CACHED}`): {short(max(rates) / 1e6)} MB/s"
    return [f"{said}; in 2009: {CACHED_2009}.", ""]


def analysts(figures: Sequence[Figure]) -> list[str]:
    """Returns the sum of all readers, by their number."""
    groups = {
        figure.what.partition(" ")[0]: {name: point(got) for name, got in figure.samples.items()}
        for figure in figures
        if figure.id.startswith("analysts/")
    }
    if not groups:
        return []
    chart = bars.render([Bars("All readers together, by their number", "MiB/s", groups)])
    return drawn("analysts", "Several analysts at once", chart)
