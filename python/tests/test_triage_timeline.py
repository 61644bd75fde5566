"""The timeline compared with mactime's, and one that exceeds memory."""

import csv
import datetime
import io
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import program, run

from cheetah.triage.tables import timeline
from cheetah.triage.tables.schemas import FILES

MARKS = (" (deleted)", " (deleted-realloc)")


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows, schema=FILES), path)
    return path


def row(path: str, *times: int, address: str = "5", volume: int = 0, size: int = 1) -> dict[str, Any]:
    return {
        "volume": volume,
        "address": address,
        "path": path,
        "size": size,
        **dict(zip(("mtime", "atime", "ctime", "crtime"), times, strict=True)),
    }


def lines(rows: list[dict[str, Any]], tmp_path: Path) -> list[tuple[Any, ...]]:
    count = timeline.write(write(tmp_path / "files.parquet", rows), tmp_path / "timeline.parquet")
    table = pq.read_table(tmp_path / "timeline.parquet").to_pylist()
    assert len(table) == count
    return [tuple(line.values()) for line in table]


def test_times_of_the_same_second_are_one_line_and_a_missing_time_is_none(tmp_path: Path) -> None:
    assert lines(
        [row("/b", 10, 20, 10, 0), row("/a", 10, 0, 0, 30), row("/a", 0, 0, 10, 30), row("/c", 0, 0, 0, 0)], tmp_path
    ) == [
        (10, 0, "5", "/a", "m.c.", 1),
        (10, 0, "5", "/b", "m.c.", 1),
        (20, 0, "5", "/b", ".a..", 1),
        (30, 0, "5", "/a", "...b", 1),
    ]


def test_without_files_the_timeline_is_empty(tmp_path: Path) -> None:
    assert lines([], tmp_path) == []


def test_the_timeline_equals_mactimes(
    evidence: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = tmp_path / "volume.raw"
    run(program("qemu-img"), "convert", "-O", "raw", evidence("windows_volume.qcow2"), image)
    body = tmp_path / "body"
    body.write_text(run(program("fls"), "-r", "-m", "/", image))
    rows = []
    for line in body.read_text().splitlines():
        _, path, address, _, _, _, size, atime, mtime, ctime, crtime = line.split("|")
        rows.append(row(path, int(mtime), int(atime), int(ctime), int(crtime), address=address, size=int(size)))
    monkeypatch.setenv("TZ", "UTC")
    theirs = []
    for line in csv.DictReader(
        io.StringIO(run(program("mactime"), "-b", body, "-d", "-y", env={**os.environ, "TZ": "UTC"}))
    ):
        if not line["Date"].startswith("0000"):
            when = datetime.datetime.fromisoformat(line["Date"]).timestamp()
            theirs.append((int(when), 0, line["Meta"], line["File Name"], line["Type"]))
    assert rows and [line[:5] for line in lines(rows, tmp_path)] == theirs


def test_a_timeline_larger_than_memory_is_sorted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(6)
    rows = [
        row(
            f"/{chance.randrange(500)}/é",
            *(chance.choice((0, 7, chance.randrange(300))) for _ in range(4)),
            address=str(chance.randrange(50)),
        )
        for _ in range(3000)
    ]
    whole = lines(rows, tmp_path)
    monkeypatch.setattr(timeline, "BATCH_ROWS", 500)
    monkeypatch.setattr(timeline, "PART_LINES", 700)
    assert lines(rows, tmp_path) == whole
    assert [line[:4] for line in whole] == sorted(line[:4] for line in whole)
    assert not list(tmp_path.glob(".timeline-*"))
