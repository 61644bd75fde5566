"""The charts of the guide's page on moving images, drawn from the tables of the published results: one for each question that is
answered there."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Sequence

from bench.report import rows
from bench.report.plot import Point
from bench.report.rows import Rows

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
IMAGES_DIR = os.path.join(ROOT, "docs", "images")
GUIDE = os.path.join(ROOT, "docs", "guide", "move-an-image.md")
# A figure of a table, with its spread if it has one; thousands are spaced.
CELL = re.compile(r"\**(?P<middle>\d[\d ]*(?:\.\d+)?)(?: \[(?P<low>[\d .]+) – (?P<high>[\d .]+)\])?")
# A pipe in a name does not end a cell.
PIPE, HIDDEN = "\\|", "\0"


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of a page: by row and head, the cell as text."""

    cells: dict[str, dict[str, str]]

    def point(self, row: str, head: str) -> Point | None:
        """Returns a figure; None if there is none."""
        found = CELL.match(self.cells.get(row, {}).get(head, ""))
        if not found:
            return None
        middle = _number(found["middle"])
        return Point(middle, *(_number(found[key]) if found[key] else middle for key in ("low", "high")))


def _number(text: str) -> float:
    return float(text.replace(" ", ""))


def table(page: str, heading: str) -> Table:
    """Returns the table below a line that begins with this heading; an empty one without it."""
    lines = page.replace(PIPE, HIDDEN).splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith(heading)), len(lines))
    found = lines[start + 1 :]
    while found and not found[0].startswith("|"):
        found.pop(0)
    taken = []
    for line in found:
        if not line.startswith("|"):
            break
        taken.append([cell.strip().replace(HIDDEN, "|") for cell in line.strip("|").split("|")])
    if not taken:
        return Table({})
    heads = taken[0][1:]
    return Table({row[0]: dict(zip(heads, row[1:], strict=False)) for row in taken[2:]})


@dataclasses.dataclass(frozen=True)
class Column:
    """A quantity of a chart: its name there, the heading of its table, and its head in it."""

    name: str
    heading: str
    head: str


@dataclasses.dataclass(frozen=True)
class Question:
    """A question and its chart: the name of its file, the page of the results, and what is shown of it."""

    name: str
    title: str
    unit: str
    page: str
    columns: Sequence[Column]
    rows: Sequence[str]

    @property
    def path(self) -> str:
        """Returns the path of its chart."""
        return os.path.join(IMAGES_DIR, f"move-{self.name}.svg")

    def chart(self, page: str) -> Rows | None:
        """Returns its chart; None if the page lacks a figure of each row."""
        shown: dict[str, dict[str, Point]] = {}
        for column in self.columns:
            of_column = table(page, column.heading)
            for row in self.rows:
                if point := of_column.point(row, column.head):
                    shown.setdefault(row, {})[column.name] = point
        ordered = {row: shown[row] for row in self.rows if row in shown}
        return Rows(self.title, self.unit, ordered) if len(ordered) == len(self.rows) else None


WARM, COLD = "All rows, warm cache", "All rows, cold cache"
PIPES = ("cat | nc", "gzip | nc", "bzip2 | nc", "zstd -T0 | nc", "cheetah acquire (auto)")


def _ends(heading: str, column: str) -> tuple[Column, Column]:
    """Returns when each end is done, in a table of the parts of transfers."""
    return (
        Column("the sender is done", heading, f"the sender is done, {column} (s)"),
        Column("the receiver is done", heading, f"the receiver is done, {column} (s)"),
    )


QUESTIONS = (
    Question(
        "blocks",
        "Is a larger block in dd faster? Random bytes",
        "MiB/s",
        "acquire",
        (Column("one machine", WARM, "loopback, random"), Column("1 Gbit/s", WARM, "1gbit, random")),
        ("dd bs=512 | nc", "dd bs=1M | nc", "cat | nc"),
    ),
    Question(
        "contents",
        "Does it matter what the image holds? 1 Gbit/s",
        "MiB/s",
        "acquire",
        (
            Column("zeros", WARM, "1gbit, zeroed"),
            Column("random bytes", WARM, "1gbit, random"),
            Column("files", WARM, "1gbit, mixed"),
        ),
        ("dd bs=512 | nc", "cat | nc", "cheetah acquire (auto)"),
    ),
    Question(
        "compressing",
        "Is it worth compressing on the way? Files",
        "MiB/s",
        "acquire",
        (
            Column("1 Gbit/s", WARM, "1gbit, mixed"),
            Column("100 Mbit/s, 20 ms of round trip", WARM, "100mbit-20ms, mixed"),
        ),
        PIPES,
    ),
    Question(
        "caches",
        "Does it matter whether the image was read before? One machine, files",
        "MiB/s",
        "acquire",
        (Column("not read before", COLD, "loopback, mixed"), Column("in memory", WARM, "loopback, mixed")),
        ("dd bs=512 | nc", "cat | nc", "cheetah acquire (auto)"),
    ),
    Question(
        "ends",
        "Which end is done first? 1 GiB of random bytes over 1 Gbit/s",
        "s",
        "transfer-contents",
        _ends("Between two machines, this machine's disk", "random, 1GiB"),
        PIPES,
    ),
    Question(
        "receivers",
        "Does it matter what receives? 1 GiB of random bytes over 1 Gbit/s",
        "s",
        "transfer-receivers",
        _ends("To this machine's disk", "cold"),
        ("nc | dd", "nc | dd bs=1M iflag=fullblock", "nc | cat", "nc | tee, md5sum", "cheetah acquire"),
    ),
    Question(
        "disks",
        "Does a slow disk matter? The same from and to a disk of 24 MB/s",
        "s",
        "transfer-receivers",
        _ends("To a disk of 24 MB", "cold"),
        ("nc | dd", "nc | cat", "cheetah acquire"),
    ),
    Question(
        "compressed",
        "Does it help to compress before? 1 GiB of zeros over 1 Gbit/s",
        "s",
        "transfer-compressed",
        _ends("Sending over 1 Gbit", "zeroed"),
        ("cat .gz | nc", "cat .bz2 | nc", "cat .xz | nc", "cat .zst | nc", "in flight: cheetah acquire"),
    ),
)


def drawings(pages: dict[str, str]) -> dict[str, str]:
    """Returns the charts that can be drawn from these pages of the results, by their paths."""
    charts = {question.path: question.chart(pages[question.page]) for question in QUESTIONS if question.page in pages}
    return {path: rows.render([chart]) for path, chart in charts.items() if chart}


def write(pages: dict[str, str]) -> None:
    """Writes them."""
    for path, drawing in drawings(pages).items():
        with open(path, "w", encoding="utf-8") as file:
            file.write(drawing)
