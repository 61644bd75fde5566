"""Where the content of files begins, as a listing for a cluster notes it, and the ranges that tasks have from that."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import pytsk3
import triage_images

from cheetah.triage.filesystem import volumes
from cheetah.triage.hub import plan
from cheetah.triage.listing import assemble, walk
from cheetah.triage.reading.worker import Worker
from cheetah.triage.settings import Settings
from cheetah.triage.tables.schemas import LISTING
from cheetah.triage.tables.store import ArrowRows, Parts, Writer
from cheetah.triage.task import CompletedTask, Task, Volume, rows_of


def listed(image: Path, folder: Path, scheduler: str | None) -> tuple[Volume, pa.Table]:
    """The listing of the first volume of an image, with the places of files if it is for a cluster."""
    worker = Worker(str(image), Settings(str(image), str(folder), scheduler=scheduler))
    worker.volumes = volumes.find(worker, volumes.task(None)).volumes
    (volume,) = worker.volumes
    tasks, tables = [walk.first_task(volume.index, volume.root_inode)], []
    while tasks:
        result = walk.listing(worker, tasks.pop(0))
        assert result.problems == []
        tables.append(result.rows)
        tasks += result.tasks
    worker.close()
    return volume, pa.concat_tables(tables)


def content(image: Path, volume: Volume, row: dict[str, Any]) -> bytes:
    """The first bytes of a file, as The Sleuth Kit reads it."""
    system = pytsk3.FS_Info(pytsk3.Img_Info(str(image)), offset=volume.start)
    file = system.open_meta(inode=row["inode"])
    length = min(row["size"], 512)
    if row["attr_type"] is None:
        return bytes(file.read_random(0, length))
    return bytes(file.read_random(0, length, row["attr_type"], row["attr_id"]))


@pytest.mark.parametrize("make", [triage_images.ext4, triage_images.ntfs], ids=["ext4", "ntfs"])
def test_the_noted_place_of_a_file_has_the_first_bytes_of_its_content(
    make: Callable[[Path], Path], tmp_path: Path
) -> None:
    image = make(tmp_path)
    whole = image.read_bytes()
    volume, table = listed(image, tmp_path, "tcp://lab1:8786")
    placed = [row for row in table.to_pylist() if row["start"] is not None and row["allocated"] and row["kind"] == "r"]
    assert len(placed) > 30
    for row in placed:
        first = content(image, volume, row)
        assert whole[row["start"] : row["start"] + len(first)] == first, row["path"]
    # Nothing else of a listing depends on it, and the workers of one machine are not asked for it.
    _, alone = listed(image, tmp_path, None)
    assert alone.drop_columns(["start"]) == table.drop_columns(["start"])
    assert alone["start"].null_count == alone.num_rows


def test_tasks_have_the_ranges_of_their_files_and_are_named_without_them(tmp_path: Path) -> None:
    def tasks(starts: list[int | None]) -> list[Task]:
        rows: list[dict[str, Any]] = [dict.fromkeys(LISTING.names) for _ in starts]
        for number, (row, start) in enumerate(zip(rows, starts, strict=True)):
            row.update(volume=0, address=str(number), path=f"/{number}", name=f"{number}", kind="r", deleted=False)
            row.update(allocated=True, size=number * 100, inode=number, extension="", start=start)
        shutil.rmtree(tmp_path / "listing", ignore_errors=True)
        (tmp_path / "listing").mkdir()
        writer = Writer(tmp_path / "listing/rows.arrow", LISTING)
        writer.write(pa.Table.from_pylist(rows, LISTING))
        writer.close()
        found = ArrowRows(tmp_path / "listing/rows.arrow", plan.COLUMNS)
        return list(plan.content_tasks(found, np.arange(len(starts)), Settings("disk", "out", max_file=250)))

    (with_places,) = tasks([10, 2000, None, 4000])
    (without,) = tasks([None] * 4)
    # No content, its size, its place not known, and as much as is read.
    assert with_places.ranges == ((2000, 100), (4000, 250))
    assert without.ranges == ()
    assert (with_places.id, with_places) == (without.id, without)


def test_a_listing_that_an_earlier_version_began_goes_on(tmp_path: Path) -> None:
    parts, task = Parts(tmp_path / "parts"), walk.first_task(0, 2)
    row: dict[str, Any] = {**dict.fromkeys(LISTING.names), "name": "file", "line": b"file"}
    digest = parts.write(rows_of(task.id), pa.Table.from_pylist([row], LISTING).drop_columns(["start"]))
    done = CompletedTask(id=task.id, stage="listing", rows=digest, row_count=1, starts=[0])
    assemble.Listing(parts, {task.id: done}, [task]).write(tmp_path / "listing.arrow", tmp_path / "bodyfile.txt")
    (found,) = ArrowRows(tmp_path / "listing.arrow", ("name", "start")).take([0])
    assert found == {"name": "file", "start": None}


def test_tasks_for_unallocated_space_have_its_range() -> None:
    volume = Volume(0, 1 << 20, 3 << 20, "ext4", "a volume")
    tasks = list(plan.unallocated_tasks((volume,), 8 << 20))
    assert [task.ranges for task in tasks] == [(task.what,) for task in tasks]
    assert sum(length for task in tasks for _, length in task.ranges) == 8 << 20
