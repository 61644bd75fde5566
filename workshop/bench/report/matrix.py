"""Tables with a row per method and a column per image and link, for `acquire` and `triage`."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cheetah.bench.figure import Figure
from cheetah.bench.units import short

CELL = re.compile(r"triage/(?P<image>[^/]+)/(?P<link>[^/]+/[^/]+)/(?P<what>[^/]+)")
# The title of a table, and the figures it is made of.
TRIAGE_TABLES = (
    ("Mounting, or copying, and listing", ("listing", "listing-agent", "listing-copy")),
    ("Extraction of 200 files after that", ("extraction", "local")),
    ("Extraction of 200 scattered files after that", ("scattered",)),
)
COLUMN = re.compile(r"acquire/(?P<link>[^/]+)/(?P<kind>[^/]+)/(?P<cache>[^/]+)(/auto)?")


def transfer_table(figures: list[Figure]) -> list[str]:
    """Returns one table for each state of the cache: medians in MiB/s, the fastest of each column in bold."""
    columns: dict[tuple[str, ...], dict[str, float]] = {}
    names: list[str] = []
    for figure in figures:
        found = COLUMN.fullmatch(figure.id)
        if not found:
            continue
        column = columns.setdefault((found["cache"], found["link"], found["kind"]), {})
        for name in figure.samples:
            column[name] = figure.median(name)
            if name not in names:
                names.append(name)
    lines = []
    for cache in dict.fromkeys(cache for cache, _, _ in columns):
        of_cache = {key[1:]: column for key, column in columns.items() if key[0] == cache}
        lines += [f"All rows, {cache} cache (MiB/s of image):", "", *_table(of_cache, sorted(names, key=_order)), ""]
    return lines


def triage_tables(figures: list[Figure]) -> list[str]:
    """Returns the listing and extraction times: a table for each image, a column per link, the fastest in bold."""
    lines = []
    for what, ids in TRIAGE_TABLES:
        columns: dict[str, dict[str, dict[str, float]]] = {}
        names: dict[str, None] = {}
        for figure in figures:
            found = CELL.fullmatch(figure.id)
            if found and found["what"] in ids:
                column = columns.setdefault(found["image"], {}).setdefault(found["link"].replace("/", ", "), {})
                for name in figure.samples:
                    column[name] = figure.median(name)
                    names[name] = None
        for image, links in columns.items():
            lines += [f"{what}, {image} (s):", "", *_table(links, list(names), best=min), ""]
    return lines


def _order(name: str) -> tuple[bool, str]:
    return name.startswith("cheetah"), name


def _table(
    columns: Mapping[Any, dict[str, float]], names: Iterable[str], best: Callable[[Iterable[float]], float] = max
) -> list[str]:
    heads = [key if isinstance(key, str) else ", ".join(key) for key in columns]
    lines = [f"| | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for name in names:
        cells = [_cell(column, name, best) for column in columns.values()]
        lines.append(f"| {name.replace('|', chr(92) + '|')} | {' | '.join(cells)} |")
    return lines


def _cell(column: dict[str, float], name: str, best: Callable[[Iterable[float]], float]) -> Any:
    if name not in column:
        return ""
    text = short(column[name])
    return f"**{text}**" if column[name] == best(column.values()) else text
