"""The files with findings, for other tools: their hashes in a table that IPED's hash database imports (notable.csv), and their
MD5s as `md5sum` prints them (notable-md5.txt), a hash set for The Sleuth Kit and Autopsy.

Left out are files that were not read whole, known ones, and empty ones: every empty file would match.
"""

import collections.abc
import csv
import pathlib
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cheetah.durable import for_owner, written
from cheetah.triage.settings import HASHES
from cheetah.triage.tables.utf8_path import utf8

TABLE = "notable.csv"
MD5S = "notable-md5.txt"
SET = "cheetah-triage"
"""The name of the set in the table."""
HEADER = (*(name.upper() for name in HASHES), "set", "score", "finding", "path")

_FILE = ["volume", "address", "path"]
_ORDER = [("score_max", "descending"), *((name, "ascending") for name in ("volume", "path", "address", *HASHES))]
# IPED separates several values by this.
_SEPARATOR = "|"
# A line for each file, as in the bodyfile.
_VISIBLE = {code: "^" for code in range(32)}
_ROWS = 8192


def write(folder: pathlib.Path) -> None:
    """Writes both files from files.parquet and findings.parquet in a folder, the highest score first."""
    found, kinds = _found(folder / "findings.parquet")
    rows = _files(folder / "files.parquet", found)
    with (
        written(folder / TABLE) as table_path,
        written(folder / MD5S) as md5s_path,
        open(table_path, "x", encoding="utf-8", newline="", opener=for_owner) as table,
        open(md5s_path, "x", encoding="utf-8", newline="", opener=for_owner) as md5s,
    ):
        lines = csv.writer(table, lineterminator="\n")
        lines.writerow(HEADER)
        for row in _each(rows):
            path = row["path"].translate(_VISIBLE)
            finding = _SEPARATOR.join(kind for kind in kinds if row[f"{kind}_any"])
            lines.writerow([*(row[name] or "" for name in HASHES), SET, row["score_max"], finding, path])
            if row["md5"]:
                md5s.write(f"{row['md5']}  {path}\n")


def _found(findings: pathlib.Path) -> tuple[pa.Table, list[str]]:
    """Returns a row for each file with findings: its best score, and whether it has findings of each of the kinds."""
    table = pq.read_table(utf8(findings), columns=[*_FILE, "score", "kind"])
    table = table.filter(pc.is_valid(table.column("path")))
    kinds = sorted(pc.unique(table.column("kind")).to_pylist())
    for kind in kinds:
        table = table.append_column(kind, pc.equal(table.column("kind"), kind))
    table = table.drop_columns("kind")
    return table.group_by(_FILE).aggregate([("score", "max"), *((kind, "any") for kind in kinds)]), kinds


def _files(files: pathlib.Path, found: pa.Table) -> pa.Table:
    """Returns the rows of files with findings that belong into a hash set, in order."""
    columns = [*_FILE, "size", "known", "wanted", *HASHES]
    hashed = pc.coalesce(*(pc.field(name) for name in HASHES)).is_valid()
    fits = hashed & (pc.field("size") > 0) & (~pc.field("known") | pc.field("wanted").is_valid())
    parts = []
    for batch in pq.ParquetFile(utf8(files)).iter_batches(columns=columns):
        rows = pa.Table.from_batches([batch]).filter(fits)
        parts.append(rows.join(found, _FILE, join_type="inner"))
    return pa.concat_tables(parts).sort_by(_ORDER) if parts else pa.table({})


def _each(rows: pa.Table) -> collections.abc.Iterator[dict[str, Any]]:
    for batch in rows.to_batches(_ROWS):
        yield from batch.to_pylist()
