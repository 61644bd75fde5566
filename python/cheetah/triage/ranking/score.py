"""Scores: what to read first and what to look at first, in points with reasons.

A score is a sum of points that anyone can check, not a probability. `rank` uses metadata only and orders the reading;
`final` includes the results of reading. Known files score 0, unless they are also wanted.
"""

import collections.abc
import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cheetah.triage.kinds import types
from cheetah.triage.ranking import folder_kinds
from cheetah.triage.task import Finding

FINDINGS = {
    "wanted-hash": 1000,
    "yara": 300,
    "keyword": 200,
    "misplaced": 150,
    "mismatch": 120,
    "name": 100,
    "encrypted": 80,
    "deleted": 40,
}
"""Points for a finding of each kind, before its folder's points. A keyword in a name counts half of one in content: a
short name contains a word by chance more often, and says nothing of the content."""
NAMED_FIRST = 100
"""Extra points in reading order for a keyword in a name: with them no other reason outranks it, apart from the
folder."""
HIT_POINTS, HITS_COUNTED = 5, 10
DELETED = 30
RECENT = ((1, 40), (7, 30), (30, 15))
"""Days before the volume's last activity, and points for a change within them."""
BUSY = 15
BUSY_DAYS = 3
LARGE_BYTES, LARGE = 16 << 20, -20
EMPTY = -200

_KINDS = (
    (40, "mail", "pst ost eml mbox msg dbx nsf"),
    (35, "a document", "doc docx xls xlsx ppt pptx odt ods odp pdf rtf txt csv one md"),
    (30, "an archive", "zip 7z rar gz tgz bz2 xz tar iso"),
    (30, "something that may be encrypted", "kdbx hc tc axx gpg pgp asc key pem pfx p12 wallet"),
    (30, "a database or a record", "sqlite sqlite3 db mdb accdb evtx evt lnk pf dat reg log"),
    (25, "a picture or a film", "jpg jpeg png heic gif bmp tif tiff mp4 mov avi mkv 3gp webp"),
    (20, "a program", "exe dll sys scr bat cmd ps1 vbs js jar msi com hta sh py"),
)  # fmt: skip
_BY_EXTENSION = {extension: (points, what) for points, what, names in _KINDS for extension in names.split()}
# Types that a person made or received; a deleted one of these is worth a finding of its own.
_PERSONAL = frozenset(("image", "video", "audio", "document", "archive", "mail", "encrypted", "executable"))

DAY_S = 86400


@dataclasses.dataclass(frozen=True)
class ScorePoint:
    """Points, and the reason for them."""

    points: int
    why: str


class Activity:
    """The days on which files of each volume changed. Bounded: one counter for each day of a hundred years."""

    _FIRST_DAY, _DAYS = 3652, 36525  # From 1980 on: earlier dates were set artificially.

    def __init__(self) -> None:
        self._days: dict[int, npt.NDArray[np.int64]] = {}
        self._last: dict[int, int] = {}
        self._busy: dict[int, frozenset[int]] = {}

    @classmethod
    def of(cls, batches: collections.abc.Iterable[pa.RecordBatch]) -> "Activity":
        """Returns the activity of a whole listing."""
        activity = cls()
        for rows in batches:
            activity.add(rows)
        return activity

    def add(self, rows: pa.RecordBatch) -> None:
        """Counts rows of the listing."""
        volumes = rows.column("volume").to_numpy()
        days = _changed(rows) // DAY_S - self._FIRST_DAY
        inside = (days >= 0) & (days < self._DAYS)
        for volume in np.unique(volumes).tolist():
            counted = np.bincount(days[inside & (volumes == volume)], minlength=self._DAYS)
            self._days[volume] = self._days.get(volume, 0) + counted
            self._last.pop(volume, None)
            self._busy.pop(volume, None)

    def last(self, volume: int) -> int:
        """Returns the last day on which at least a few files changed (days since 1970), so that one wrong clock does
        not decide; -1 if none."""
        if volume not in self._last:
            counts = self._days.get(volume, np.zeros(0, np.int64))
            days = np.flatnonzero(counts >= min(3, counts.max(initial=1)))
            self._last[volume] = int(days[-1]) + self._FIRST_DAY if len(days) else -1
        return self._last[volume]

    def busy(self, volume: int) -> frozenset[int]:
        """Returns the busiest days of the last year of activity; the system is usually installed earlier."""
        if volume not in self._busy:
            last = self.last(volume) - self._FIRST_DAY
            year = (
                self._days[volume][max(0, last - 365) : last + 1] if volume in self._days and last >= 0 else np.zeros(0)
            )
            best = sorted(range(len(year)), key=lambda day: (-year[day], -day))[:BUSY_DAYS]
            self._busy[volume] = frozenset(max(0, last - 365) + self._FIRST_DAY + day for day in best if year[day] > 1)
        return self._busy[volume]


def _changed(rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Returns when each file last changed or was created."""
    times = [rows.column(name).to_numpy(zero_copy_only=False).astype(np.int64) for name in ("mtime", "crtime")]
    latest: npt.NDArray[np.int64] = np.maximum(*times)
    return latest


_RANKED = ("volume", "path", "extension", "named", "size", "deleted", "mtime", "crtime")
_FINAL = (*_RANKED, "known", "wanted", "hits", "type", "type_mismatch")


def rank(rows: pa.RecordBatch, activity: Activity | None = None) -> pa.Array:
    """Returns the rank of each row by its metadata: int32, highest to be read first."""
    ranks = [
        _sum(_promise(row, activity)) + (NAMED_FIRST if row["named"] is not None else 0) for row in _rows(rows, _RANKED)
    ]
    return pa.array(ranks, pa.int32())


def final(rows: pa.RecordBatch, activity: Activity | None = None) -> pa.Array:
    """Returns the score of each row of files.parquet, including the results of reading: int32."""
    return pa.array([_sum(explain(row, activity)) for row in _rows(rows, _FINAL)], pa.int32())


def explain(row: collections.abc.Mapping[str, Any], activity: Activity | None = None) -> list[ScorePoint]:
    """Returns the points of one row of files.parquet with their reasons. Their sum is at least 0."""
    if row["known"] and row["wanted"] is None:
        return []
    points = []
    if row["wanted"] is not None:
        points.append(ScorePoint(FINDINGS["wanted-hash"], f"its hash is in the list {row['wanted']}"))
    if row["hits"]:
        more = HIT_POINTS * min(row["hits"], HITS_COUNTED)
        points.append(ScorePoint(FINDINGS["keyword"] + more, f"{row['hits']} matches of keywords or rules"))
    if row["type_mismatch"]:
        points.append(ScorePoint(FINDINGS["mismatch"], f"its content is not that of a .{row['extension']} file"))
    if types.family(row["type"]) == "encrypted":
        points.append(ScorePoint(FINDINGS["encrypted"], f"it is encrypted, or looks so ({row['type']})"))
    points += _promise(row, activity)
    short = -sum(point.points for point in points)
    return [*points, ScorePoint(short, "no score is below 0")] if short > 0 else points


def of_finding(kind: str, path: str | None, deleted: bool = False) -> int:
    """Returns the score of a finding, from its kind and its folder."""
    place = folder_kinds.of(path).points if path is not None else 0
    return max(1, FINDINGS.get(kind, 20) + place + (DELETED if deleted else 0))


def findings(rows: pa.RecordBatch) -> list[Finding]:
    """Returns the findings that rows are in themselves: user files that were deleted and can be recovered whole."""
    found = []
    for row in _rows(rows, (*_FINAL, "address", "read_state")):
        if not row["deleted"] or row["known"] or row["read_state"] != "whole" or not row["size"]:
            continue
        if types.family(row["type"]) in _PERSONAL and folder_kinds.of(row["path"]).points >= 30:
            points = of_finding("deleted", row["path"])
            where = f"deleted {folder_kinds.of(row['path']).name}"
            detail = f"{where}; all of its clusters are free, and their content looks like {row['type']}"
            found.append(Finding(points, row["volume"], "deleted", row["type"], detail, row["address"], row["path"]))
    return found


def _rows(rows: pa.RecordBatch, names: tuple[str, ...]) -> collections.abc.Iterator[dict[str, Any]]:
    columns = [rows.column(name).to_pylist() for name in names]
    for values in zip(*columns, strict=True):
        yield dict(zip(names, values, strict=True))


def _sum(points: collections.abc.Iterable[ScorePoint]) -> int:
    return sum(point.points for point in points)


def _promise(row: collections.abc.Mapping[str, Any], activity: Activity | None) -> collections.abc.Iterator[ScorePoint]:
    """Yields the points of metadata."""
    if row["named"] is not None:
        yield ScorePoint(FINDINGS["name"], f"its name contains the keyword {row['named']}")
    place = folder_kinds.of(row["path"])
    if place.points:
        yield ScorePoint(place.points, f"it is {place.name}")
    kind = _BY_EXTENSION.get(row["extension"])
    if kind is not None:
        yield ScorePoint(kind[0], f"by its name, it is {kind[1]}")
    if row["deleted"]:
        yield ScorePoint(DELETED, "it is deleted")
    if not row["size"]:
        yield ScorePoint(EMPTY, "it is empty")
    elif row["size"] > LARGE_BYTES:
        yield ScorePoint(LARGE, "it is large and takes long to read")
    if activity is not None:
        yield from _recent(row, activity)


def _recent(row: collections.abc.Mapping[str, Any], activity: Activity) -> collections.abc.Iterator[ScorePoint]:
    day = max(row["mtime"], row["crtime"]) // DAY_S
    last = activity.last(row["volume"])
    for days, points in RECENT:
        if 0 <= last - day < days:
            yield ScorePoint(
                points,
                f"it changed in the last {days} days of the volume's use"
                if days > 1
                else "it changed on the last day of the volume's use",
            )
            break
    if day in activity.busy(row["volume"]):
        yield ScorePoint(BUSY, "it changed on one of the busiest days of the last year")
