"""Tables for people: on a terminal, and in a pipe."""

import itertools
import shutil
import sys
from collections.abc import Iterable, Iterator
from typing import TextIO

from rich.box import Box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cheetah.bench.results import Part
from cheetah.bench.sheet import Line, Sheet, sheets

PIPE_COLUMNS = 200
"""The width of a table if the output has none."""
HEAD_CHARS_MAX = 12
_RULE = Box("    \n    \n ── \n    \n    \n    \n    \n    \n")
_STYLES = {"figures": "", "spread": "dim", "speed up": "cyan", "group": "bold"}
_GAP = 2


def show(part: Part, out: TextIO | None = None) -> None:
    """Prints the tables of a part, by default to stdout; in colour only on a terminal."""
    draw(sheets(part), out)


def draw(drawn: Iterable[Sheet], out: TextIO | None = None) -> None:
    """Prints tables."""
    out = out or sys.stdout
    width = shutil.get_terminal_size().columns if out.isatty() else PIPE_COLUMNS
    console = Console(file=out, width=width, highlight=False, markup=False, emoji=False)
    for sheet in drawn:
        for block in _blocks(sheet, width):
            console.print(Text(block.title, "bold"))
            console.print(_drawn(block))
        for note in sheet.notes:
            console.print(Text(note, "dim"))
        console.print()


def _drawn(sheet: Sheet) -> Table:
    table = Table(box=_RULE, show_edge=False, pad_edge=False, padding=(0, 1))
    table.add_column("", overflow="fold", min_width=8)
    for number, head in enumerate(sheet.heads):
        table.add_column(Text(_two_lines(head)), justify="left" if number in sheet.left else "right", no_wrap=True)
    for line in sheet.lines:
        label = f"  {line.label}" if line.kind == "speed up" else line.label
        table.add_row(Text(label), *map(Text, line.cells), style=_STYLES[line.kind])
    return table


def _two_lines(head: str) -> str:
    """Splits long heads into two lines, so that columns stay narrow."""
    words = head.split()
    return head if len(head) <= HEAD_CHARS_MAX else f"{' '.join(words[:-1])}\n{words[-1]}".strip()


def _blocks(sheet: Sheet, width: int) -> Iterator[Sheet]:
    """Yields the sheet cut into as many as it needs to fit; the names are repeated."""
    names = min(max((cell_len(line.label) + 2 for line in sheet.lines), default=0), max(width // 3, 20))
    wide = [max(map(cell_len, column)) + _GAP for column in _columns(sheet)]
    begin = 0
    while begin < len(wide) or begin == 0:
        end = begin + 1
        while end < len(wide) and names + sum(wide[begin : end + 1]) <= width:
            end += 1
        yield Sheet(
            sheet.title if begin == 0 else f"{sheet.title}, continued",
            sheet.heads[begin:end],
            tuple(_cut(line, begin, end) for line in sheet.lines),
            left=frozenset(number - begin for number in sheet.left),
        )
        begin = end


def _columns(sheet: Sheet) -> Iterator[tuple[str, ...]]:
    for number, head in enumerate(sheet.heads):
        yield *_two_lines(head).splitlines(), *(line.cells[number] for line in sheet.lines)


def _cut(line: Line, begin: int, end: int) -> Line:
    return Line(line.label, tuple(itertools.islice(line.cells, begin, end)), line.kind)
