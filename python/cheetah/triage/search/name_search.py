"""Searches keywords in the names of files, folders and streams, while they are listed and before any content is read.

Many names are searched in one pass of the engine that searches content, so a million names cost almost nothing.
"""

import collections
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from cheetah.triage.ranking import score
from cheetah.triage.reading.worker import Worker
from cheetah.triage.search import scan
from cheetah.triage.task import Finding

FINDINGS_MAX = 1000
"""The maximum number of findings for one keyword in a task; the last one counts the rest."""
_FILE_NAME = 48
_OWN_STREAM = b".:"
"""How a listing repeats the streams of a folder inside it."""


def engine(worker: Worker) -> scan.Engine | None:
    """Returns the worker's engine with keywords alone, compiled when first needed; None without keywords."""
    if "keywords" not in worker.keep:
        worker.keep["keywords"] = scan.load(worker.settings.keywords, ())
    found: scan.Engine | None = worker.keep["keywords"]
    return found


def find(searching: scan.Engine, names: Sequence[bytes], first: int = 0) -> Iterator[tuple[int, int, str]]:
    """Yields each keyword in each of the names (in UTF-8): the name's number from `first` on, the offset of the first
    match in it, and the keyword. Raises scan.TooLong if it takes too long."""
    hits = searching.scan(b"\n".join(names))
    if len(names) > 1 and any(hit.more for hit in hits):
        # More matches than the engine counts at once.
        half = len(names) // 2
        yield from find(searching, names[:half], first)
        yield from find(searching, names[half:], first + half)
        return
    ends = np.cumsum([len(name) + 1 for name in names])
    for hit in hits:
        last = -1
        for number, offset in zip(np.searchsorted(ends, hit.offsets, side="right").tolist(), hit.offsets, strict=True):
            if number != last:
                yield first + number, offset - (int(ends[number - 1]) if number else 0), hit.rule
            last = number


def finding(volume: int, keyword: str, what: str, address: str, path: str, deleted: bool) -> Finding:
    """Returns the finding that the name of a `what` contains a keyword."""
    points = score.of_finding("name", path, deleted)
    return Finding(points, volume, "name", keyword, f"the name of the {what} contains “{keyword}”", address, path)


class NameSearch:
    """Searches the names of one task's rows."""

    def __init__(self, searching: scan.Engine, volume: int):
        self._engine = searching
        self._volume = volume
        self._found: list[Finding] = []
        self._last: dict[str, int] = {}
        self._counts: collections.Counter[str] = collections.Counter()
        self.trouble: str | None = None
        """The names that were not searched, and why."""

    def look(self, columns: Mapping[str, Sequence[Any]]) -> list[str | None]:
        """Returns, for each row, the alphabetically first keyword in its name. The rows must include all rows of a
        directory entry."""
        names = [name.encode("utf-8", "replace") for name in columns["name"]]
        named: list[str | None] = [None] * len(names)
        best: dict[tuple[Any, ...], tuple[bool, bool, int]] = {}
        try:
            for row, place, keyword in find(self._engine, names) if names else ():
                named[row] = min(named[row] or keyword, keyword)
                if columns["attr_type"][row] is not None and names[row].startswith(_OWN_STREAM):
                    continue
                key, rank = _entry(columns, names[row], row, place)
                best[*key, keyword] = min(rank, best.get((*key, keyword), rank))
        except scan.TooLong as error:
            self.trouble = f"names were not all searched for keywords: {error}"
        for (*_, stream, keyword), (_, _, row) in sorted(best.items(), key=lambda one: (one[1][2], one[0][-1])):
            self._note(columns, row, keyword, stream is not None)
        return named

    def findings(self) -> list[Finding]:
        """Returns the findings, in the order of the listing."""
        found = list(self._found)
        for keyword, place in self._last.items():
            more = self._counts[keyword] - FINDINGS_MAX
            if more > 0:
                last = found[place]
                detail = f"{last.detail}; so do {more} more names in this part of the listing"
                found[place] = dataclasses.replace(last, detail=detail)
        return found

    def _note(self, columns: Mapping[str, Sequence[Any]], row: int, keyword: str, in_stream: bool) -> None:
        self._counts[keyword] += 1
        if self._counts[keyword] > FINDINGS_MAX:
            return
        folder = "d" in (columns["kind"][row], columns["name_kind"][row])
        what = "stream" if in_stream else "folder" if folder else "file"
        address, path, deleted = (columns[name][row] for name in ("address", "path", "deleted"))
        self._last[keyword] = len(self._found)
        self._found.append(finding(self._volume, keyword, what, address, path, deleted))


def _entry(
    columns: Mapping[str, Sequence[Any]], name: bytes, row: int, place: int
) -> tuple[tuple[Any, ...], tuple[bool, bool, int]]:
    """Returns the key that rows with the same name share (NTFS has a row for each stream, and one for the name's own
    times), and which of them represents the name best."""
    kind = columns["attr_type"][row]
    colon = name.find(b":") if kind is not None else -1
    if 0 <= colon <= place:
        return (columns["inode"][row], columns["path"][row], columns["address"][row]), (False, False, row)
    path = columns["path"][row]
    if colon >= 0:
        path = path[: len(path) - len(columns["name"][row].partition(":")[2]) - 1]
    return (columns["inode"][row], path, None), (kind == _FILE_NAME, colon >= 0, row)
