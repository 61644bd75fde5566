"""The report of a real run in a browser: each number is counted again from the tables and The Sleuth Kit, by other
code."""

import collections
import datetime
import html.parser
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import triage_images
from browser import rendered
from triage_listing import by_fls
from triage_workers import Alone

from cheetah.triage.hub import run
from cheetah.triage.hub.closing import DONE
from cheetah.triage.hub.run import Run
from cheetah.triage.settings import Settings

Row = dict[str, Any]

EDGES = (0, 1, *(1024 * 4**power for power in range(12)))
"""Where the bars of sizes begin."""


class Page(html.parser.HTMLParser):
    """The figures of a page by their places, as it shows them, and the data it has for its own script."""

    def __init__(self, page: str):
        super().__init__()
        self.figures: dict[str, set[int]] = {}
        self.bars: dict[str, int] = {}
        self.data: Row = {}
        self._drawing = self._element = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self._element = tag if attributes.get("type") != "application/json" else "data"
        place = attributes.get("data-figure") or attributes.get("data-size")
        if tag == "data" and place:
            self.figures.setdefault(place, set()).add(int(attributes["value"] or ""))
        if tag == "div" and attributes.get("id"):
            self._drawing = attributes["id"] or ""

    def handle_data(self, data: str) -> None:
        if self._element == "data" and data.lstrip().startswith("{"):
            self.data = json.loads(data)
        if self._element == "title" and self._drawing == "overview" and ": " in data:
            when, _, number = data.rpartition(": ")
            self.bars[when] = int("".join(letter for letter in number if letter.isdigit()))

    def handle_endtag(self, tag: str) -> None:
        self._element = ""


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The result of a run over NTFS, with streams, links, deleted files, a keyword, and a fake picture."""
    monkeypatch.setattr(run, "_start_workers", lambda uri, settings: Alone(uri, settings))
    words, known = tmp_path / "words.txt", tmp_path / "known.txt"
    words.write_text("bottom\n")
    image = triage_images.ntfs(tmp_path)
    folder = tmp_path / "out"
    first = Settings(str(image), str(tmp_path / "first"))
    assert Run(first, lambda event: None).go()[0] == DONE
    rows = pq.read_table(tmp_path / "first/files.parquet", columns=["name", "sha1"]).to_pylist()
    known.write_text(next(row["sha1"] for row in rows if row["name"] == "file01.bin") + "\n")
    settings = Settings(str(image), str(folder), keywords=(str(words),), known=(str(known),))
    assert Run(settings, lambda event: None).go()[0] == DONE
    assert (folder / "bodyfile.txt").read_bytes().splitlines() == by_fls(image)
    return folder


def content(rows: list[Row]) -> list[Row]:
    """Returns the rows with content of their own: files and streams, without the list of bad clusters."""
    named = [row for row in rows if row["attr_type"] == 128 and ":" in row["path"] or is_file(row)]
    return [row for row in named if not row["path"].endswith("$BadClus:$Bad")]


def is_own(row: Row) -> bool:
    """Whether a row is an entry, and neither a second set of times nor a stream or index of another."""
    return row["attr_type"] != 48 and ":" not in row["path"]


def is_file(row: Row) -> bool:
    return is_own(row) and row["kind"] == "r"


def moments(rows: list[Row]) -> collections.Counter[str]:
    """For each day, the number of seconds in which something happened to an entry, over all entries."""
    days: collections.Counter[str] = collections.Counter()
    for row in filter(is_own, rows):
        for moment in {row[name] for name in ("mtime", "atime", "ctime", "crtime")} - {0}:
            days[datetime.datetime.fromtimestamp(moment, datetime.UTC).date().isoformat()] += 1
    return days


def test_every_number_of_the_page_follows_from_the_tables(out: Path) -> None:
    page = Page(rendered(out))
    rows = pq.read_table(out / "files.parquet").to_pylist()
    findings = pq.read_table(out / "findings.parquet").to_pylist()
    files, read = [row for row in rows if is_file(row)], content(rows)
    deleted = [row for row in files if row["deleted"]]
    assert files and deleted and findings and len(read) > len(files)

    expected = {
        "counts.rows": len((out / "bodyfile.txt").read_bytes().splitlines()),
        "counts.files": len(files),
        "counts.deleted": len(deleted),
        "counts.directories": sum(is_own(row) and row["kind"] == "d" for row in rows),
        "counts.orphans": sum(is_own(row) and bool(row["orphan"]) for row in rows),
        "counts.hashed": sum(row["sha256"] is not None for row in read),
        "counts.known": sum(bool(row["known"]) for row in read),
        "counts.wanted": 0,
        "counts.mismatch": sum(bool(row["type_mismatch"]) for row in read),
        "counts.findings": len(findings),
        "bytes.files": sum(row["size"] for row in files),
        "bytes.deleted": sum(row["size"] for row in deleted),
        "volumes.0.files": len(files),
        "volumes.0.deleted": len(deleted),
    }
    for state in ("whole", "partial", "unreadable", "unread", "skipped"):
        there = [row for row in read if row["read_state"] == state or row["read_state"] is None and state == "whole"]
        expected[f"coverage.files.{state}.files"] = len(there)
        expected[f"coverage.files.{state}.bytes"] = sum(row["size"] for row in there)
    for kind, number in collections.Counter(row["type"] for row in read if row["type"]).items():
        expected[f"types.{kind}"] = number
    for number, edge in enumerate(zip(EDGES, [*EDGES[1:], 1 << 62], strict=True)):
        expected[f"sizes.{number}.files"] = sum(edge[0] <= row["size"] < edge[1] for row in files)
    assert expected["counts.known"] >= 1 and len([place for place in expected if place.startswith("types.")]) > 1
    assert {place: page.figures.get(place) for place in expected} == {
        place: {value} for place, value in expected.items()
    }
    assert page.data["activity"] == moments(rows)
    assert sum(page.bars.values()) == sum(moments(rows).values())
