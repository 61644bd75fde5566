"""Figures as the published pages have them, for calculations: all that is calculated can be checked with the page in hand."""

from __future__ import annotations

import os
import re

from cheetah.bench.failure import BenchError

BENCH = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(os.path.dirname(BENCH))
PAGES_DIR = os.path.join(BENCH, "results")
# The first two cells of a row: what, its unit, and the median of ours.
ROW = re.compile(r"^\| (?P<what>.*?) \((?P<unit>[^()|]*)\) \| (?P<ours>\d[\d .]*) \[", re.MULTILINE)


def ours(page: str, what: str) -> float:
    """Returns our median in a row of a page; `what` is the beginning of the row. Raises BenchError if there is none."""
    for row in ROW.finditer(_text(page)):
        if row["what"].startswith(what):
            return _number(row["ours"])
    raise BenchError(f"results/{page}.md has no row that begins with: {what}")


def exists(page: str) -> bool:
    """Returns whether the part was measured."""
    return os.path.exists(_path(page))


def link(page: str, what: str, words: str, to_results: str) -> str:
    """Returns a link to a row; `to_results` is the path from the document to the folder of the pages. Raises BenchError
    if there is no such row."""
    ours(page, what)
    return f'[{words}]({to_results}/{page}.md "{what}")'


def _path(page: str) -> str:
    return os.path.join(PAGES_DIR, f"{page}.md")


def _text(page: str) -> str:
    try:
        with open(_path(page), encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        raise BenchError(f"results/{page}.md is missing: the part was not measured") from None


def _number(text: str) -> float:
    return float(text.replace(" ", ""))
