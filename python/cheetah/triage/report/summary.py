"""summary.json: the figures of a run, from its tables and from the run itself.

Tables are read a batch of rows at a time. The same tables and facts give the same bytes.
"""

import collections.abc
import dataclasses
import datetime
import json
import os
import pathlib
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cheetah.durable import replace
from cheetah.page.visible import decoded
from cheetah.placing import Placement
from cheetah.triage.report.statistics import COLUMNS, DAY_S, SIZE_EDGES, FileStatistics
from cheetah.triage.tables.utf8_path import utf8
from cheetah.triage.task import Problem, Volume

VERSION = 1
BATCH_ROWS = 1 << 16
# The files to look at first: this many, from this many of the first findings.
TOP_MAX = 50
GROUPED_MAX = 5000
REASONS_PER_FILE_MAX = 12
EXTENSIONS_MAX = 100
TYPES_MAX = 200
PROBLEMS_MAX = 1000

_FINDING = ("score", "volume", "address", "path", "offset", "kind", "rule", "detail", "excerpt")
_FILE = (
    "volume", "address", "path", "size", "mtime", "atime", "ctime", "crtime", "deleted", "orphan", "allocated",
    "md5", "sha1", "sha256", "type", "extension", "type_mismatch", "known", "wanted", "score", "read_state", "why",
)  # fmt: skip

Json = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class UnallocatedCoverage:
    """Unallocated space in bytes. `wanted` says whether it was to be searched."""

    wanted: bool = False
    bytes: int = 0
    searched: int = 0
    unreadable: int = 0


@dataclasses.dataclass(frozen=True)
class RunFacts:
    """Facts about the run that its tables do not contain. Times are UTC, RFC 3339."""

    source: Json
    """`name`, `size_bytes` and `uri`; `hashes` of the whole source, name to hex, if known."""
    volumes: collections.abc.Sequence[Volume]
    started: str
    ended: str
    complete: bool
    """Whether every requested stage was completed."""
    settings: Json = dataclasses.field(default_factory=dict)
    tool_versions: dict[str, str] = dataclasses.field(default_factory=dict)
    command: collections.abc.Sequence[str] = ()
    """The command line, split into words."""
    problems: collections.abc.Sequence[Problem] = ()
    stages: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    """For each stage the number of tasks done and known; for content, files."""
    bytes_read: int = 0
    """Bytes of files read."""
    link: Json = dataclasses.field(default_factory=dict)
    """Counters of the share: `source_bytes` over the link, and others."""
    unallocated: UnallocatedCoverage = UnallocatedCoverage()
    lost: collections.abc.Sequence[str] = ()
    """Sentences about parts that the source itself has lost."""
    doubts: collections.abc.Sequence[str] = ()
    """Sentences about what is in doubt although all of the source can be read, such as a file system that reaches beyond its
    end."""
    case: Json = dataclasses.field(default_factory=dict)
    """Case data: numbers, examiner, description, notes."""
    custody: Json = dataclasses.field(default_factory=dict)
    """The custody log: its file, and the short name of the key that signs it."""
    connections: collections.abc.Sequence[str] = ()
    """How the connections to the source were protected, a sentence for each server; none for a file or disk of the machine."""

    unlocked: Json | None = None
    """What keys did to encrypted volumes: `opened` and `locked`, as `cheetah.Device.unlocked`; None if none were given."""

    logical: Json | None = None
    """The arrays and logical volumes, as `cheetah.Device.logical`; None if there are none."""

    placement: Placement | None = None
    """How many tasks were placed near their bytes; None without a cluster."""

    at_nodes: Json | None = None
    """What a search for the atoms of YARA rules came to, where the bytes lie; None if none was asked for."""

    @property
    def quick(self) -> bool:
        """Whether only the highest-ranked files were to be read."""
        return bool(self.settings.get("quick"))


def write(out: str | os.PathLike[str], facts: RunFacts) -> Json:
    """Writes summary.json beside the tables in the directory `out`, and returns its content."""
    folder = pathlib.Path(out)
    summary = summarise(folder / "files.parquet", folder / "findings.parquet", facts)
    text = json.dumps(summary, indent=1, ensure_ascii=True) + "\n"
    replace(folder / "summary.json", text.encode("ascii"))
    return summary


def summarise(files: pathlib.Path, findings: pathlib.Path, facts: RunFacts) -> Json:
    """Returns the figures. A missing table, as after an early stop, counts as empty."""
    tally = FileStatistics(int(facts.source.get("size_bytes") or 0), _seconds(facts.ended))
    for batch in batches(files, COLUMNS):
        tally.add(batch)
    kinds, total = _count_kinds(findings)
    tally.counts["findings"] = total
    return {
        "version": VERSION,
        "complete": facts.complete,
        "verdict": verdict(facts, tally),
        "source": _source(facts),
        "case": facts.case,
        "custody": facts.custody,
        "started": facts.started,
        "ended": facts.ended,
        "command": list(facts.command),
        "settings": facts.settings,
        "tool_versions": facts.tool_versions,
        "volumes": [_volume(one, tally) for one in facts.volumes],
        "counts": dict(sorted(tally.counts.items())),
        "bytes": {
            "files": tally.bytes,
            "deleted": tally.bytes_deleted,
            "read": facts.bytes_read,
            "unread": tally.states["unread"]["bytes"] + tally.states["skipped"]["bytes"],
            "unreadable": tally.states["unreadable"]["bytes"],
        },
        "coverage": _coverage(facts, tally),
        **({} if facts.at_nodes is None else {"at_nodes": facts.at_nodes}),
        "types": tally.types.ranked(TYPES_MAX),
        "type_bytes": tally.type_bytes.ranked(TYPES_MAX),
        "mismatches": tally.mismatches.ranked(TYPES_MAX),
        "extensions": tally.extensions.ranked(EXTENSIONS_MAX),
        "activity": _activity(tally),
        "undated": {name: tally.undated[name] for name in ("files", "unset", "before_1970", "future", "midnight")},
        "hours": [tally.hours[day * 24 : day * 24 + 24].tolist() for day in range(7)],
        "sizes": [
            {"from": edge, "files": int(tally.sizes[bar]), "deleted": int(tally.sizes_deleted[bar])}
            for bar, edge in enumerate(SIZE_EDGES)
        ],
        "findings": kinds,
        "top": _with_files(_top(findings), files),
        "problems": [dataclasses.asdict(problem) for problem in facts.problems[:PROBLEMS_MAX]],
        "problems_total": len(facts.problems),
        **({} if facts.placement is None else {"placement": dataclasses.asdict(facts.placement)}),
    }


def verdict(facts: RunFacts, tally: FileStatistics) -> str:
    """Returns the verdict in one word: "stopped", "quick", "gaps" or "whole". A gap is what could not be read, or was
    cut off by a limit: not a file without content of its own, nor space that nobody asked to search."""
    if not facts.complete:
        return "stopped"
    if facts.quick:
        return "quick"
    missing = sum(tally.states[state]["files"] for state in ("partial", "unreadable", "unread"))
    missing += facts.unallocated.unreadable + len(facts.lost) + len(facts.doubts)
    missing += sum(problem.is_missing for problem in facts.problems)
    foreign = any(not volume.fs for volume in facts.volumes)
    return "gaps" if missing or foreign or not facts.volumes else "whole"


def batches(path: pathlib.Path, columns: collections.abc.Sequence[str]) -> collections.abc.Iterator[pa.RecordBatch]:
    """Yields a table in batches; nothing if it does not exist."""
    if not path.exists():
        return
    with pq.ParquetFile(utf8(path), pre_buffer=False) as table:
        yield from table.iter_batches(batch_size=BATCH_ROWS, columns=list(columns), use_threads=False)


def first_findings(path: pathlib.Path, most: int) -> list[Json]:
    """Returns the first findings, which have the highest scores; texts as `visible.decoded` returns them."""
    rows: list[Json] = []
    for batch in batches(path, _FINDING):
        rows += _records(batch.slice(0, most - len(rows)))
        if len(rows) >= most:
            break
    return rows


def _records(batch: pa.RecordBatch) -> list[Json]:
    """Returns rows as dictionaries, even if a text is not UTF-8."""
    columns: dict[str, list[Any]] = {}
    for name in batch.schema.names:
        column = batch.column(name)
        if pa.types.is_string(column.type):
            columns[name] = [None if one is None else decoded(one) for one in column.cast(pa.binary()).to_pylist()]
        else:
            columns[name] = column.to_pylist()
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _count_kinds(findings: pathlib.Path) -> tuple[Json, int]:
    kinds: dict[str, int] = collections.Counter()
    for batch in batches(findings, ("kind",)):
        for pair in batch.column("kind").value_counts().to_pylist():
            kinds[pair["values"] or ""] += pair["counts"]
    return dict(sorted(kinds.items(), key=lambda pair: (-pair[1], pair[0]))), sum(kinds.values())


def _top(findings: pathlib.Path) -> list[Json]:
    """Returns the first findings grouped by file, in the order of the best of each."""
    groups: dict[tuple[Any, ...], Json] = {}
    for row in first_findings(findings, GROUPED_MAX):
        place = {name: row[name] for name in ("volume", "address", "path")}
        key = tuple(place.values()) if row["address"] is not None else (row["volume"], None, row["offset"])
        offset = row["offset"] if row["address"] is None else None
        group = groups.setdefault(key, {"score": row["score"], **place, "offset": offset, "findings": 0, "why": []})
        group["findings"] += 1
        if len(group["why"]) < REASONS_PER_FILE_MAX:
            group["why"].append({name: row[name] for name in ("score", "offset", "kind", "rule", "detail", "excerpt")})
    return list(groups.values())[:TOP_MAX]


def _with_files(top: list[Json], files: pathlib.Path) -> list[Json]:
    """Adds the facts about each file, in one more pass over the table."""
    wanted = {(one["volume"], one["address"], one["path"]): one for one in top if one["address"] is not None}
    addresses = pa.array(sorted({address for _, address, _ in wanted}), pa.string())
    for batch in batches(files, _FILE) if wanted else ():
        for row in _records(batch.filter(pc.is_in(batch.column("address"), value_set=addresses))):
            one = wanted.get((row["volume"], row["address"], row["path"]))
            if one is not None:
                one.setdefault("file", {name: row[name] for name in _FILE[3:]})
    return top


def _source(facts: RunFacts) -> Json:
    unlocked = {} if facts.unlocked is None else {"unlocked": facts.unlocked}
    logical = {} if facts.logical is None else {"logical": facts.logical}
    said = {"connections": list(facts.connections), "doubts": list(facts.doubts)}
    return {**facts.source, **said, **unlocked, **logical}


def _volume(volume: Volume, tally: FileStatistics) -> Json:
    return {**dataclasses.asdict(volume), **dataclasses.asdict(tally.volumes[volume.index])}


def _coverage(facts: RunFacts, tally: FileStatistics) -> Json:
    return {
        "files": tally.states,
        "reasons": tally.reasons.ranked(20),
        "not_understood": [volume.index for volume in facts.volumes if not volume.fs],
        "unallocated": dataclasses.asdict(facts.unallocated),
        "stages": {name: {"done": done, "total": total} for name, (done, total) in facts.stages.items()},
        "link": facts.link,
        "lost": list(facts.lost),
    }


def _activity(tally: FileStatistics) -> dict[str, int]:
    first = datetime.date(1970, 1, 1)
    return {
        (first + datetime.timedelta(days=int(day))).isoformat(): int(tally.days[day]) for day in tally.days.nonzero()[0]
    }


def _seconds(moment: str) -> int:
    return int(datetime.datetime.fromisoformat(moment).timestamp())


__all__ = ["DAY_S", "RunFacts", "UnallocatedCoverage", "batches", "first_findings", "summarise", "verdict", "write"]
