"""The transfer table as people know it: a row a method, a column an image and a link."""

import re

from bench.units import short

COLUMN = re.compile(r"acquire/(?P<link>[^/]+)/(?P<kind>[^/]+)/(?P<cache>[^/]+)(/auto)?")


def transfer_table(figures):
    """One table for each state of the cache: medians in MiB/s, the fastest of each column in bold."""
    columns, names = {}, []
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


def _order(name):
    return name.startswith("cheetah"), name


def _table(columns, names):
    heads = [f"{link}, {kind}" for link, kind in columns]
    lines = [f"| | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for name in names:
        cells = [_cell(column, name) for column in columns.values()]
        lines.append(f"| {name.replace('|', chr(92) + '|')} | {' | '.join(cells)} |")
    return lines


def _cell(column, name):
    if name not in column:
        return ""
    text = short(column[name])
    return f"**{text}**" if column[name] == max(column.values()) else text
