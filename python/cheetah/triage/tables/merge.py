"""Writes files.parquet and findings.parquet from the listing and the results of reading, a batch of rows at a time."""

import pathlib
import shutil
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cheetah.durable import written
from cheetah.triage.tables import content_rows
from cheetah.triage.tables.schemas import CONTENT, FILES, FINDINGS
from cheetah.triage.tables.store import BATCH_ROWS, ArrowRows, Parts, findings_table
from cheetah.triage.tables.utf8_path import utf8
from cheetah.triage.task import CompletedTask, findings_of, rows_of

BATCHES_A_BUCKET = 8
FINDINGS_ORDER = [
    (name, "descending" if name == "score" else "ascending")
    for name in ("score", "volume", "path", "address", "offset", "kind", "rule", "detail", "excerpt")
]


class Buckets:
    """Content rows that arrive in any order and are needed in the order of the listing: distributed to files by row
    number."""

    def __init__(self, folder: pathlib.Path):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self._folder = folder
        self._writers: dict[int, Any] = {}
        self._held: tuple[int, pa.Table] | None = None

    def add(self, rows: pa.Table) -> None:
        """Adds rows."""
        buckets = rows.column("row").to_numpy() // (BATCH_ROWS * BATCHES_A_BUCKET)
        for bucket in np.unique(buckets):
            if bucket not in self._writers:
                self._writers[bucket] = pa.ipc.new_stream(utf8(self._path(bucket)), CONTENT)
            self._writers[bucket].write_table(rows.filter(pa.array(buckets == bucket)))

    def close(self) -> None:
        """Ends adding."""
        for writer in self._writers.values():
            writer.close()

    def batch(self, number: int) -> pa.Table:
        """Returns the content rows of a batch of the listing, by row."""
        bucket = number // BATCHES_A_BUCKET
        if self._held is None or self._held[0] != bucket:
            self._held = (bucket, self._read(bucket))
        table = self._held[1]
        rows = table.column("row").to_numpy()
        begin, end = np.searchsorted(rows, [number * BATCH_ROWS, (number + 1) * BATCH_ROWS])
        return table.slice(begin, end - begin)

    def remove(self) -> None:
        """Removes the files."""
        self._held = None
        shutil.rmtree(self._folder)

    def _read(self, bucket: int) -> pa.Table:
        if bucket not in self._writers:
            return CONTENT.empty_table()
        with pa.ipc.open_stream(pa.memory_map(utf8(self._path(bucket)))) as reader:
            return reader.read_all().sort_by("row").combine_chunks()

    def _path(self, bucket: int) -> pathlib.Path:
        return self._folder / f"{bucket}.stream"


def files(
    listing: ArrowRows,
    buckets: Buckets,
    out: pathlib.Path,
    why_unread: str,
    complete: bool,
    wrote: Callable[[int], None] = lambda rows: None,
) -> list[pa.Table]:
    """Writes files.parquet; returns the findings that its rows are in themselves. `why_unread` explains rows that were
    not read; `wrote` is called with the number of new rows."""
    from cheetah.triage.ranking import score

    found: list[pa.Table] = []
    activity = score.Activity.of(listing.batches())
    schema = FILES.with_metadata({"complete": str(complete).lower()})
    with written(out) as partial, pq.ParquetWriter(utf8(partial), schema, compression="zstd") as writer:
        for number, rows in enumerate(listing.batches()):
            joined = _joined(rows, number, buckets.batch(number), why_unread)
            joined = joined.set_column(FILES.get_field_index("score"), "score", score.final(joined, activity))
            found.append(findings_table(score.findings(joined)))
            writer.write_batch(joined.cast(schema))
            wrote(rows.num_rows)
    return found


def _joined(rows: pa.RecordBatch, number: int, content: pa.Table, why_unread: str) -> pa.RecordBatch:
    """Returns listing rows joined with their content rows."""
    places = np.full(rows.num_rows, -1, np.int64)
    places[content.column("row").to_numpy() - number * BATCH_ROWS] = np.arange(content.num_rows)
    index = pa.array(places, mask=places < 0)
    columns: dict[str, pa.Array] = {name: rows.column(name) for name in rows.schema.names}
    for name in CONTENT.names:
        if name != "why":
            columns[name] = content.column(name).combine_chunks().take(index)
    columns["score"] = pa.array(np.zeros(rows.num_rows, np.int32))
    for name, default in (("type_mismatch", False), ("known", False), ("hits", 0)):
        columns[name] = pc.fill_null(columns[name], default)
    columns["read_state"], columns["why"] = _states(rows, columns["read_state"], content, index, why_unread)
    return pa.RecordBatch.from_arrays([columns[name] for name in FILES.names], schema=FILES)


def _states(
    rows: pa.RecordBatch, known: pa.Array, content: pa.Table, index: pa.Array, why_unread: str
) -> tuple[pa.Array, pa.Array]:
    """Returns how much of each row was read, and why not all."""
    states, whys = known.to_pylist(), content.column("why").combine_chunks().take(index).to_pylist()
    readable, left_out = content_rows.has_content(rows), content_rows.skipped(rows)
    wrong = rows.column("why").to_pylist()
    for row in range(rows.num_rows):
        if states[row] is None and readable[row]:
            states[row], whys[row] = ("skipped", left_out[row]) if left_out[row] else ("unread", why_unread)
        if wrong[row] is not None and states[row] in ("whole", "partial"):
            # The content was read later, when its metadata could be read.
            whys[row] = "; ".join(filter(None, (whys[row], wrong[row])))
        elif wrong[row] is not None:
            states[row], whys[row] = "unreadable", wrong[row]
    return pa.array(states, pa.string()), pa.array(whys, pa.string())


def findings(
    parts: Parts, done: Iterable[CompletedTask], more: list[pa.Table], out: pathlib.Path, complete: bool
) -> int:
    """Writes findings.parquet, best first; returns their number."""
    tables = [parts.read(findings_of(one.id)) for one in done if one.findings]
    table = pa.concat_tables([FINDINGS.empty_table(), *tables, *more]).sort_by(FINDINGS_ORDER)
    table = table.replace_schema_metadata({"complete": str(complete).lower()})
    with written(out) as partial:
        pq.write_table(table, utf8(partial), compression="zstd")
    return int(table.num_rows)


def buckets(parts: Parts, done: Iterable[CompletedTask], folder: pathlib.Path) -> Buckets:
    """Returns the content rows of all completed tasks."""
    made = Buckets(folder)
    for one in done:
        if one.rows:
            made.add(parts.read(rows_of(one.id)))
    made.close()
    return made
