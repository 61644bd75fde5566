"""Which files are read, in which order and batches; and why others are not."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cheetah.triage.settings import QUICK_FILES, Settings
from cheetah.triage.tables import content_rows
from cheetah.triage.tables.store import ArrowRows
from cheetah.triage.task import Entry, Task, Volume

BATCH_FILES = 128
BATCH_BYTES = 16 << 20
NAMES_MAX = 1024
"""All names of a file go into one batch, so that it is read once, up to this many names."""
FIRST_BATCHES = 8
FIRST_BATCH_FILES = 16
"""The first batches are small, so that the highest-ranked findings appear soon."""
PREVIEW_FILES, PREVIEW_BYTES = 8, 1 << 20
"""Read before the listing is complete: the number of files per task, and their largest size."""
PREVIEWS_MAX = 8
"""The maximum number of such previews."""
UNALLOCATED_BYTES = 32 << 20
"""The unallocated space that one task searches."""
COLUMNS = (
    "volume", "address", "path", "name", "kind", "deleted", "allocated", "size",
    "inode", "attr_type", "attr_id", "extension", "start",
)  # fmt: skip

NOT_RANKED = "not among the highest-ranked files, which are all that a quick look reads"
GIVEN_UP = "reading it failed; see the problems"
NOT_REACHED = "the run ended before it was read"


class ReadingOrder:
    """The files to read, highest rank first; files of equal rank in the order of the listing, which follows their
    place on disk. All names of a file stand together, at the highest rank of any of them."""

    def __init__(self, settings: Settings):
        self._settings = settings
        self._rows: list[npt.NDArray[np.int64]] = []
        self._ranks: list[npt.NDArray[np.int32]] = []
        self._streams: list[npt.NDArray[np.uint64]] = []
        self._count = 0

    def add(self, rows: pa.RecordBatch, ranks: pa.Array) -> None:
        """Adds the next rows of the listing."""
        wanted = content_rows.has_content(rows) & np.array([why is None for why in content_rows.skipped(rows)], bool)
        places = np.flatnonzero(wanted)
        self._rows.append(places + self._count)
        self._ranks.append(ranks.to_numpy(zero_copy_only=False).astype(np.int32)[places])
        self._streams.append(_streams(rows)[places])
        self._count += rows.num_rows

    def rows(self) -> npt.NDArray[np.int64]:
        """Returns row numbers in reading order."""
        rows = np.concatenate(self._rows) if self._rows else np.zeros(0, np.int64)
        ranks = np.concatenate(self._ranks) if self._ranks else np.zeros(0, np.int32)
        streams = np.concatenate(self._streams) if self._streams else np.zeros(0, np.uint64)
        best = np.lexsort((rows, -ranks.astype(np.int64)))
        if self._settings.quick:
            best = best[:QUICK_FILES]
        _, first, which = np.unique(streams[best], return_index=True, return_inverse=True)
        return rows[best[np.argsort(first[which], kind="stable")]]


def _streams(rows: pa.RecordBatch) -> npt.NDArray[np.uint64]:
    """Returns a number for each row that all names of a stream share. A collision only affects the order."""
    numbers = np.zeros(rows.num_rows, np.uint64)
    for name in ("volume", "inode", "attr_type", "attr_id"):
        column = pc.fill_null(rows.column(name), 0).to_numpy(zero_copy_only=False).astype(np.uint64)
        numbers = (numbers ^ column) * np.uint64(0x9E3779B97F4A7C15)
    return numbers


def content_tasks(listing: ArrowRows, order: npt.NDArray[np.int64], settings: Settings) -> Iterator[Task]:
    """Returns batches of files to read, each from one volume."""
    batch: list[Entry] = []
    ranges: list[tuple[int, int]] = []
    total = made = 0
    rows = iter(order)
    for row, found in zip(order, listing.take(rows), strict=True):
        entry = entry_of(int(row), found)
        if batch and batch[-1].stream == entry.stream and len(batch) < NAMES_MAX:
            batch.append(entry)
            continue
        cost = min(entry.size, settings.max_file)
        files_max = FIRST_BATCH_FILES if made < FIRST_BATCHES else BATCH_FILES
        if batch and (len(batch) >= files_max or total + cost > BATCH_BYTES or batch[0].volume != entry.volume):
            yield Task.of_entries(batch[0].volume, batch, ranges)
            batch, ranges, total, made = [], [], 0, made + 1
        batch.append(entry)
        total += cost
        if found["start"] is not None and cost > 0:
            # Where it begins: the listing does not say where the other runs of a file in several are.
            ranges.append((found["start"], cost))
    if batch:
        yield Task.of_entries(batch[0].volume, batch, ranges)


def entry_of(row: int, found: dict[str, Any]) -> Entry:
    """Returns the stream of a row of the listing, with these columns, for reading."""
    return Entry(
        row, found["volume"], found["address"], found["inode"], found["attr_type"], found["attr_id"], found["size"],
        found["path"], found["name"], found["extension"], found["deleted"], found["allocated"],
    )  # fmt: skip


def preview(rows: pa.Table, ranks: Callable[[pa.RecordBatch], pa.Array]) -> Task | None:
    """Returns a task that reads the highest-ranked rows of an incomplete listing, so that findings appear early. They
    are read again in their turn."""
    best: list[tuple[int, dict[str, Any]]] = []
    for batch in rows.to_batches():
        size = batch.column("size").to_numpy(zero_copy_only=False)
        mask = content_rows.has_content(batch) & (size > 0) & (size <= PREVIEW_BYTES)
        mask &= np.array([why is None for why in content_rows.skipped(batch)], bool)
        rank = ranks(batch).to_numpy(zero_copy_only=False)
        places = np.flatnonzero(mask & (rank > 0))
        places = places[np.argsort(-rank[places], kind="stable")][:PREVIEW_FILES]
        best += [
            (int(rank[place]), one) for place, one in zip(places, batch.take(pa.array(places)).to_pylist(), strict=True)
        ]
    best.sort(key=lambda one: -one[0])
    entries = [entry_of(-1, row) for _, row in best[:PREVIEW_FILES]]
    return Task.of_entries(entries[0].volume, entries) if entries else None


def unallocated_tasks(volumes: tuple[Volume, ...], size: int) -> Iterator[Task]:
    """Returns ranges of unallocated space: inside file systems, between them, and in unrecognised partitions. Where
    file systems overlap, the free space of each is searched."""
    end = 0
    for volume in sorted((one for one in volumes if one.fs), key=lambda one: one.start):
        yield from _ranges(-1, end, volume.start)
        yield from _ranges(volume.index, volume.start, volume.start + volume.length)
        end = max(end, volume.start + volume.length)
    yield from _ranges(-1, end, size)


def _ranges(volume: int, start: int, end: int) -> Iterator[Task]:
    for begin in range(start, end, UNALLOCATED_BYTES):
        place = (begin, min(UNALLOCATED_BYTES, end - begin))
        yield Task("unallocated", volume, place, (place,))
