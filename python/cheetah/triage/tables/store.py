"""The schemas of the result, and the storage of its parts until they are merged."""

import hashlib
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from cheetah.durable import written
from cheetah.triage.tables.utf8_path import utf8
from cheetah.triage.task import Finding

STRING = pa.string()

LISTING = pa.schema(
    [
        ("volume", pa.int32()),
        ("address", STRING),
        ("path", STRING),
        ("name", STRING),
        ("kind", STRING),
        ("name_kind", STRING),
        ("deleted", pa.bool_()),
        ("orphan", pa.bool_()),
        ("allocated", pa.bool_()),
        ("size", pa.int64()),
        ("mtime", pa.int64()),
        ("atime", pa.int64()),
        ("ctime", pa.int64()),
        ("crtime", pa.int64()),
        ("mode", STRING),
        ("uid", pa.int64()),
        ("gid", pa.int64()),
        ("inode", pa.uint64()),
        ("attr_type", pa.int32()),
        ("attr_id", pa.int32()),
        ("extension", STRING),
        ("named", STRING),
        ("why", STRING),
        ("line", pa.binary()),
    ]
)
"""One row for each line of the bodyfile. `line` is the line without its end; `named` is the alphabetically first
keyword in its name; `why` says what is wrong with the row if its metadata could not be read. files.parquet has neither
line nor inode."""

CONTENT = pa.schema(
    [
        ("row", pa.int64()),
        ("read_state", STRING),
        ("why", STRING),
        ("md5", STRING),
        ("sha1", STRING),
        ("sha256", STRING),
        ("type", STRING),
        ("mime", STRING),
        ("type_mismatch", pa.bool_()),
        ("known", pa.bool_()),
        ("wanted", STRING),
        ("hits", pa.int32()),
        ("bytes_read", pa.int64()),
    ]
)
"""One row for each file to be read; `row` is its line in the bodyfile, from 0. Fields as in `task.Content`."""

FILES = pa.schema(
    [
        *[
            LISTING.field(name)
            for name in (
                "volume",
                "address",
                "path",
                "name",
                "kind",
                "name_kind",
                "deleted",
                "orphan",
                "allocated",
                "size",
                "mtime",
                "atime",
                "ctime",
                "crtime",
                "mode",
                "uid",
                "gid",
                "attr_type",
                "attr_id",
            )
        ],
        *[CONTENT.field(name) for name in ("md5", "sha1", "sha256", "type", "mime")],
        LISTING.field("extension"),
        LISTING.field("named"),
        *[CONTENT.field(name) for name in ("type_mismatch", "known", "wanted", "hits")],
        ("score", pa.int32()),
        *[CONTENT.field(name) for name in ("read_state", "why")],
    ]
)
"""files.parquet, in the order of the bodyfile."""

FINDINGS = pa.schema(
    [
        ("score", pa.int32()),
        ("volume", pa.int32()),
        ("address", STRING),
        ("path", STRING),
        ("offset", pa.int64()),
        ("kind", STRING),
        ("rule", STRING),
        ("detail", STRING),
        ("excerpt", STRING),
    ]
)
"""findings.parquet: the highest score first, then by volume, path, offset, kind and rule."""

TIMELINE = pa.schema(
    [
        ("time", pa.int64()),
        ("volume", pa.int32()),
        ("address", STRING),
        ("path", STRING),
        ("what", STRING),
        ("size", pa.int64()),
    ]
)
"""timeline.parquet: seconds since 1970; `what` are MACB letters, merged as mactime does ("m.cb")."""

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
