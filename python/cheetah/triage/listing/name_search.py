"""Keywords in names: what a file, a folder or a stream is called. They are found as the listing is made, before
anything is read.

Names are searched together, many in one pass of the engine that searches contents, so that a million cost next to
nothing.
"""

import collections
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from cheetah.triage.content import scan
from cheetah.triage.ranking import score
from cheetah.triage.task import Finding
from cheetah.triage.workers.worker import Worker

FINDINGS_MAX = 1000
"""Findings of one keyword in one task's names; the last of them says how many more there are."""
_FILE_NAME = 48
_OWN_STREAM = b".:"
"""How a listing says the streams of a folder once more, within it."""


def engine(worker: Worker) -> scan.Engine | None:
    """The worker's own, of keywords alone; None where there are none. Compiled when it is first needed."""
    if "keywords" not in worker.keep:
        worker.keep["keywords"] = scan.load(worker.settings.keywords, ())
    found: scan.Engine | None = worker.keep["keywords"]
    return found


def find(searching: scan.Engine, names: Sequence[bytes], first: int = 0) -> Iterator[tuple[int, int, str]]:
    """Each keyword in each of the names, which are in UTF-8: the number of the name (from `first` on), at which of its
    bytes the keyword first is, and the keyword. scan.TooLong if it takes too long."""
    hits = searching.scan(b"\n".join(names))
    if len(names) > 1 and any(hit.more for hit in hits):
        # There are more than the engine counts at once.
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
    """That the name of a `what` holds a keyword."""
    points = score.of_finding("name", path, deleted)
    return Finding(points, volume, "name", keyword, f"the name of the {what} holds “{keyword}”", address, path)


class Names:
    """Looks for keywords in the names of one task's rows."""

    def __init__(self, searching: scan.Engine, volume: int):
        self._engine = searching
        self._volume = volume
        self._found: list[Finding] = []
        self._last: dict[str, int] = {}
        self._counts: collections.Counter[str] = collections.Counter()
        self.trouble: str | None = None
        """What was not searched, and why."""

    def look(self, columns: Mapping[str, Sequence[Any]]) -> list[str | None]:
        """For each of some rows of the listing, the first keyword in its name by the alphabet. All rows of a directory
        entry are to be among them."""
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
        """What was found, in the order of the listing."""
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
    """What rows have in common that say the same name (of NTFS there is one for each stream, and one for the times in
    the name), and which of them says it best."""
    kind = columns["attr_type"][row]
    colon = name.find(b":") if kind is not None else -1
    if 0 <= colon <= place:
        return (columns["inode"][row], columns["path"][row], columns["address"][row]), (False, False, row)
    path = columns["path"][row]
    if colon >= 0:
        path = path[: len(path) - len(columns["name"][row].partition(":")[2]) - 1]
    return (columns["inode"][row], path, None), (kind == _FILE_NAME, colon >= 0, row)
