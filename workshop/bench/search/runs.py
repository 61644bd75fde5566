"""Searches under measurement. Each task has one right result, wherever the search is made."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import time
from collections.abc import Sequence
from typing import Any

from bench.scratch import Scratch
from bench.search.evidence import FEW, MANY, Evidence
from bench.tools import cheetah
from cheetah.bench.failure import BenchError
from cheetah.bench.process import run
from cheetah.bench.units import MIB
from cheetah.bench.verbs import Enter

AT_NODES = ("--at-nodes",)
# Of a drive that is not sealed, nodes search all but what lies at the edges of their units; of a sealed one about one unit of 16
# lies on two nodes.
NEAR_SHARE_MIN, NEAR_SHARE_SEALED_MIN = 0.98, 0.85


@dataclasses.dataclass
class Task:
    """Something that is searched for in one image, and its hits: how many must be found, if that is known, and the table of
    the first search, which all others must equal."""

    key: str
    what: str
    argv: Sequence[str]
    size_bytes: int
    hits: int | None = None
    sha256: str = ""

    def run(self, source: str, more: Sequence[str] = (), enter: Enter = list, near_share_min: float = 0.0) -> Any:
        """Searches the image, or a drive of it; returns the seconds, the rate (MiB/s), and the number of hits and the bytes of
        their table. Raises BenchError if the hits are others, or if nodes searched less than that share."""
        with Scratch() as turn:
            out = os.path.join(turn.ram_dir, "found")
            begun = time.perf_counter()
            answer = cheetah.call(["search", source, *self.argv, "--out", out, *more], enter)
            seconds = time.perf_counter() - begun
            table = os.path.join(out, "hits.csv")
            self.check(source, answer, table, near_share_min)
            rate = self.size_bytes / MIB / seconds
            return {"seconds": seconds, "rate": rate, "hits": answer["hits"], "table_bytes": len(places(table))}

    def check(self, source: str, answer: Any, table: str, near_share_min: float = 0.0) -> None:
        """Raises BenchError unless all was searched, the hits are those expected, and nodes searched their share."""
        where = f"search of {source} for {self.what}"
        if not answer["complete"]:
            raise BenchError(f"{where}: only {answer['searched_bytes']} of {self.size_bytes} bytes were searched")
        if self.hits is not None and answer["hits"] != self.hits:
            raise BenchError(f"{where}: {answer['hits']} hits instead of {self.hits}")
        found = hashlib.sha256(places(table)).hexdigest()
        if found != (self.sha256 or found):
            raise BenchError(f"{where}: the hits are not those of the first search")
        self.sha256 = found
        check_share(where, answer, self.size_bytes, near_share_min)


def places(table: str) -> bytes:
    """Returns a table of hits without its last two columns, which name the nodes that found them."""
    with open(table, "rb") as file:
        return b"".join(row.rsplit(b",", 2)[0] + b"\n" for row in file)


def check_share(where: str, answer: Any, size_bytes: int, near_share_min: float) -> None:
    """Raises BenchError if nodes worked on less than that share of a drive."""
    done = answer.get("at_nodes") or {"node_bytes": {}, "here_bytes": {}}
    near_bytes = sum(done["node_bytes"].values())
    if near_bytes < near_share_min * size_bytes:
        reasons = ", ".join(done["here_bytes"]) or "none was asked"
        raise BenchError(f"{where}: nodes worked on {near_bytes} of {size_bytes} bytes only: {reasons}")


def tasks(evidence: Evidence, more: Sequence[str] = ()) -> tuple[Task, Task]:
    """Returns the search for the few words, and that for the many."""
    few, many = evidence.hits_of_few(), len(evidence.planted)
    return (
        Task("few", f"{FEW} words", (evidence.few, *more), evidence.size_bytes, few),
        Task("many", f"{MANY:,} words", (evidence.many, *more), evidence.size_bytes, many),
    )


def received_bytes(enter: Enter) -> int:
    """Returns the bytes that the machine's interface in a lab has received so far. A super-frame counts with one header, so this
    is nearly payload."""
    shown = json.loads(run(enter(["ip", "-json", "-statistics", "link", "show", "dev", "eth0"])))
    return int(shown[0]["stats64"]["rx"]["bytes"])
