"""Counts files.parquet a batch of rows at a time: a million files take no more memory than a thousand.

Kinds of rows:

* a row with the times of a `$FILE_NAME` attribute is a *stamp*: no file of its own;
* a row with a colon in its path and an attribute behind it is a *stream* of a file (NTFS): its content counts, it
  itself does not, nor do its times, which are the file's;
* all other rows are files, directories and what else there is.
"""

import collections
import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cheetah.page.visible import decoded
from cheetah.triage.tables.schemas import FILES

DAY_S = 86400
# Midnight of 1980-01-01: FAT's "no date".
FAT_ZERO_S = 315532800
FILE_NAME, INDEX_ROOT = 48, 144
"""NTFS's attribute types `$FILE_NAME` and `$INDEX_ROOT`."""
STATES = ("whole", "partial", "unreadable", "unread", "skipped")
TIMES = ("mtime", "atime", "ctime", "crtime")
SIZE_EDGES = (0, 1, *(1024 * 4**power for power in range(12)))
"""The smallest size in each bar, in bytes: empty, below 1 KiB, then each four times larger, up to 4 GiB and more."""
# A source can hold a million different extensions. Beyond this many, all are counted together.
KEYS_MAX = 10_000
OTHERS = "(others)"
# NTFS's list of bad clusters, which pretends to hold the whole volume.
BAD_CLUSTERS = "$BadClus:$Bad"

COLUMNS = (
    "volume", "path", "kind", "deleted", "orphan", "size", *TIMES, "attr_type", "md5", "sha1", "sha256", "type",
    "extension", "type_mismatch", "known", "wanted", "hits", "read_state", "why",
)  # fmt: skip

Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


class Counter(collections.Counter[str]):
    """A bounded counter: at most `KEYS_MAX` different keys, all others together."""

    def put(self, key: str, times: int) -> None:
        """Adds to a count."""
        self[key if key in self or len(self) < KEYS_MAX else OTHERS] += times

    def put_all(self, column: pa.Array, mask: Mask) -> None:
        """Counts the strings of a column where the mask is set; nulls are skipped."""
        kept = column.filter(pa.array(mask)).drop_null().cast(pa.binary())
        for pair in kept.value_counts().to_pylist():
            self.put(decoded(pair["values"]), pair["counts"])

    def ranked(self, most: int) -> dict[str, int]:
        """Returns the most frequent, and the rest together; equals in alphabetical order."""
        order = sorted((key for key in self if key != OTHERS), key=lambda key: (-self[key], key))
        best = {key: self[key] for key in order[:most]}
        rest = sum(self.values()) - sum(best.values())
        return {**best, OTHERS: rest} if rest else best


@dataclasses.dataclass
class VolumeCounts:
    """The counts of one volume."""

    files: int = 0
    directories: int = 0
    deleted: int = 0
    bytes: int = 0


class FileStatistics:
    """Counts batches; read the attributes afterwards.

    `source_size` in bytes: a larger file is not added to any sum. `until_s` is the end of the run: later times are in
    the future.
    """

    def __init__(self, source_size: int, until_s: int):
        self.source_size = source_size
        self.last_day = min(max(until_s // DAY_S + 1, 1), 100_000)
        self.counts: collections.Counter[str] = collections.Counter()
        self.states = {state: {"files": 0, "bytes": 0} for state in STATES}
        self.reasons = Counter()
        self.types = Counter()
        self.type_bytes = Counter()
        self.mismatches = Counter()
        self.extensions = Counter()
        self.volumes: dict[int, VolumeCounts] = collections.defaultdict(VolumeCounts)
        self.days: Numbers = np.zeros(self.last_day + 1, np.int64)
        self.hours: Numbers = np.zeros(7 * 24, np.int64)
        self.undated: collections.Counter[str] = collections.Counter()
        self.sizes: Numbers = np.zeros(len(SIZE_EDGES), np.int64)
        self.sizes_deleted: Numbers = np.zeros(len(SIZE_EDGES), np.int64)
        self.bytes = 0
        self.bytes_deleted = 0
        # So that all counts exist, even for an empty table.
        self.add(pa.RecordBatch.from_arrays([pa.array([], FILES.field(name).type) for name in COLUMNS], COLUMNS))

    def add(self, batch: pa.RecordBatch) -> None:
        """Counts one batch, which has at least `COLUMNS`."""
        rows = _Rows(batch)
        size, believed = self._sizes(rows)
        self._count_names(rows, size)
        self._count_content(rows, size, believed)
        self._count_times(rows)

    def _sizes(self, rows: "_Rows") -> tuple[Numbers, Mask]:
        size = rows.integers("size")
        believed = (size >= 0) & (size <= self.source_size) & ~rows.bad_clusters
        self.counts["oversized"] += int(((rows.files | rows.streams) & ~believed & ~rows.bad_clusters).sum())
        return np.where(believed, size, 0), believed

    def _count_names(self, rows: "_Rows", size: Numbers) -> None:
        deleted = rows.flags("deleted")
        for name, mask in (
            ("rows", np.ones(rows.length, np.bool_)),
            ("stamps", rows.stamps),
            ("streams", rows.streams),
            ("files", rows.files),
            ("directories", rows.directories),
            ("others", rows.entities & ~rows.files & ~rows.directories),
            ("deleted", rows.files & deleted),
            ("deleted_directories", rows.directories & deleted),
            ("orphans", rows.entities & rows.flags("orphan")),
        ):
            self.counts[name] += int(mask.sum())
        self.bytes += int(size[rows.files].sum())
        self.bytes_deleted += int(size[rows.files & deleted].sum())
        for index in np.unique(rows.integers("volume")):
            here, volume = rows.integers("volume") == index, self.volumes[int(index)]
            volume.files += int((rows.files & here).sum())
            volume.directories += int((rows.directories & here).sum())
            volume.deleted += int((rows.files & here & deleted).sum())
            volume.bytes += int(size[rows.files & here].sum())

    def _count_content(self, rows: "_Rows", size: Numbers, believed: Mask) -> None:
        content = (rows.files | rows.streams) & ~rows.bad_clusters
        hashed = rows.present("md5") | rows.present("sha1") | rows.present("sha256")
        for name, mask in (
            ("hashed", hashed),
            ("known", rows.flags("known")),
            ("wanted", rows.present("wanted")),
            ("mismatch", rows.flags("type_mismatch")),
            ("with_hits", rows.integers("hits") > 0),
        ):
            self.counts[name] += int((mask & content).sum())
        for state in STATES:
            mask = content & rows.state(state)
            self.states[state]["files"] += int(mask.sum())
            self.states[state]["bytes"] += int(size[mask].sum())
        self.reasons.put_all(rows.column("why"), content & ~rows.state("whole"))
        self.types.put_all(rows.column("type"), content)
        self.mismatches.put_all(rows.column("type"), content & rows.flags("type_mismatch"))
        self._sum_types(rows, size, content)
        self.extensions.put_all(rows.column("extension"), rows.files)
        sized = rows.files & believed
        bars = np.searchsorted(SIZE_EDGES, size, side="right") - 1
        self.sizes += np.bincount(bars[sized], minlength=len(SIZE_EDGES))
        self.sizes_deleted += np.bincount(bars[sized & rows.flags("deleted")], minlength=len(SIZE_EDGES))

    def _sum_types(self, rows: "_Rows", size: Numbers, content: Mask) -> None:
        typed = content & rows.present("type")
        table = pa.table({"type": rows.column("type").cast(pa.binary()), "size": size}).filter(pa.array(typed))
        for row in table.group_by("type").aggregate([("size", "sum")]).sort_by("type").to_pylist():
            self.type_bytes.put(decoded(row["type"]), row["size_sum"])

    def _count_times(self, rows: "_Rows") -> None:
        times = np.sort(np.stack([rows.integers(name)[rows.entities] for name in TIMES], axis=1), axis=1)
        # A moment counts once for each file, even if several of its four times are equal.
        first = np.ones(times.shape, np.bool_)
        first[:, 1:] = times[:, 1:] != times[:, :-1]
        moments = times[first & (times != 0)]
        unset = (moments // DAY_S == 0) | (moments == FAT_ZERO_S)
        before = (moments < 0) & ~unset
        future = moments // DAY_S > self.last_day
        dated = moments[~unset & ~before & ~future]
        self.undated["files"] += int((times == 0).all(axis=1).sum())
        self.undated["unset"] += int(unset.sum())
        self.undated["before_1970"] += int(before.sum())
        self.undated["future"] += int(future.sum())
        self.days += np.bincount(dated // DAY_S, minlength=len(self.days))
        timed = dated[dated % DAY_S != 0]
        # 1970-01-01 was a Thursday; weeks begin on Monday.
        self.hours += np.bincount((timed // DAY_S + 3) % 7 * 24 + timed % DAY_S // 3600, minlength=len(self.hours))
        self.undated["midnight"] += len(dated) - len(timed)


class _Rows:
    """A batch as arrays, with its kinds of rows."""

    def __init__(self, batch: pa.RecordBatch):
        self._batch = batch
        self.length = batch.num_rows
        path = self.column("path").cast(pa.binary())
        attribute = self.integers("attr_type")
        colon = _filled(pc.match_substring(path, b":"))
        # The file system's own indexes, such as $Secure:$SDH, are no content either.
        self.stamps: Mask = (attribute == FILE_NAME) | ((attribute == INDEX_ROOT) & colon)
        self.streams: Mask = (attribute != 0) & ~self.stamps & colon
        self.bad_clusters: Mask = self.streams & _filled(pc.ends_with(path, BAD_CLUSTERS.encode()))
        self.entities: Mask = ~self.stamps & ~self.streams
        self.files: Mask = self.entities & self._is("kind", "r")
        self.directories: Mask = self.entities & self._is("kind", "d")

    def column(self, name: str) -> pa.Array:
        """Returns a column."""
        return self._batch.column(name)

    def integers(self, name: str) -> Numbers:
        """Returns a column of numbers, 0 for null."""
        filled = pc.fill_null(self.column(name).cast(pa.int64()), 0)
        array: Numbers = filled.to_numpy(zero_copy_only=False)
        return array

    def flags(self, name: str) -> Mask:
        """Returns a column of booleans, False for null."""
        return _filled(self.column(name))

    def present(self, name: str) -> Mask:
        """Returns where a column is not null."""
        array: Mask = pc.is_valid(self.column(name)).to_numpy(zero_copy_only=False)
        return array

    def state(self, state: str) -> Mask:
        """Returns the rows in a state. A row without a known state was not read, unless it has no content."""
        if state not in ("whole", "unread"):
            return self._is("read_state", state)
        stated = np.logical_or.reduce([self._is("read_state", one) for one in STATES])
        empty = self.integers("size") == 0
        known: Mask = self._is("read_state", state) | (~stated & (empty if state == "whole" else ~empty))
        return known

    def _is(self, name: str, value: str) -> Mask:
        return _filled(pc.equal(self.column(name), value))


def _filled(column: Any) -> Mask:
    array: Mask = pc.fill_null(column, False).to_numpy(zero_copy_only=False)
    return array
