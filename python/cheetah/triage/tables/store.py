"""The storage of the parts of the result until they are merged."""

import hashlib
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from cheetah.durable import written
from cheetah.triage.tables.schemas import FINDINGS
from cheetah.triage.tables.utf8_path import utf8
from cheetah.triage.task import Finding

BATCH_ROWS = 8192
"""Rows per batch in files written here: the amount in memory at a time."""
_PIECE_BYTES = 1 << 20
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


class Parts:
    """Tables in a directory, each an Arrow file that is written whole or not at all."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, name: str) -> pathlib.Path:
        """Returns the path of a part."""
        return self.folder / f"{name}.arrow"

    def write(self, name: str, table: pa.Table) -> str:
        """Writes a part; returns its digest."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema, options=_OPTIONS) as writer:
            writer.write_table(table, max_chunksize=BATCH_ROWS)
        content = sink.getvalue()
        with written(self.path(name)) as partial:
            partial.write_bytes(content)
        return hashlib.blake2b(content, digest_size=16).hexdigest()

    def is_whole(self, name: str, digest: str) -> bool:
        """Returns whether a part exists with this digest."""
        found = hashlib.blake2b(digest_size=16)
        try:
            with open(self.path(name), "rb") as file:
                while piece := file.read(_PIECE_BYTES):
                    found.update(piece)
        except OSError:
            return False
        return found.hexdigest() == digest

    def read(self, name: str) -> pa.Table:
        """Returns a part."""
        with pa.ipc.open_file(pa.memory_map(utf8(self.path(name)))) as reader:
            return reader.read_all()


class Writer:
    """An Arrow file written in batches of `BATCH_ROWS`."""

    def __init__(self, path: pathlib.Path, schema: pa.Schema):
        self._writer = pa.ipc.new_file(utf8(path), schema, options=_OPTIONS)
        self._schema = schema
        self._waiting: list[pa.Table] = []
        self._rows = 0

    def write(self, table: pa.Table) -> None:
        """Adds rows."""
        self._waiting.append(table)
        self._rows += table.num_rows
        if self._rows >= BATCH_ROWS:
            self._write_out(self._rows - self._rows % BATCH_ROWS)

    def _write_out(self, rows: int) -> None:
        table = pa.concat_tables(self._waiting) if self._waiting else self._schema.empty_table()
        if rows:
            self._writer.write_table(table.slice(0, rows).combine_chunks(), max_chunksize=BATCH_ROWS)
        self._waiting, self._rows = [table.slice(rows)], table.num_rows - rows

    def close(self) -> None:
        """Writes the remaining rows."""
        self._write_out(self._rows)
        self._writer.close()


class ArrowRows:
    """An Arrow file made by `Writer`, or some of its columns, read by row number."""

    def __init__(self, path: pathlib.Path, columns: Iterable[str] = ()):
        fields = None
        if columns:
            schema = pa.ipc.open_file(pa.memory_map(utf8(path))).schema
            fields = [schema.get_field_index(name) for name in columns]
        options = pa.ipc.IpcReadOptions(included_fields=fields)
        self._reader = pa.ipc.open_file(pa.memory_map(utf8(path)), options=options)
        self._held: tuple[int, pa.RecordBatch] | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields all rows, in order."""
        for number in range(self._reader.num_record_batches):
            yield self._reader.get_batch(number)

    def take(self, rows: Iterable[int]) -> Iterator[dict[str, Any]]:
        """Yields these rows; fastest if neighbours come together."""
        for row in rows:
            number, place = divmod(int(row), BATCH_ROWS)
            if self._held is None or self._held[0] != number:
                self._held = (number, self._reader.get_batch(number))
            batch = self._held[1]
            yield {name: batch.column(index)[place].as_py() for index, name in enumerate(batch.schema.names)}

    @property
    def batch_count(self) -> int:
        """Returns the number of batches; all but the last have `BATCH_ROWS` rows."""
        return int(self._reader.num_record_batches)


def findings_table(findings: Iterable[Finding]) -> pa.Table:
    """Returns findings as a table."""
    rows = list(findings)
    return pa.table({name: [getattr(row, name) for row in rows] for name in FINDINGS.names}, schema=FINDINGS)
