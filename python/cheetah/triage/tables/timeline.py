"""The timeline: every time of every file, sorted and merged as `mactime` does.

A file modified and changed in the same second has one line for both, "m.c.". A time of 0 means none and has no line.
The table may exceed memory: lines are divided into files by sampled ranges, and each file is sorted.
"""

import bisect
import collections.abc
import pathlib
import tempfile

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cheetah.durable import written
from cheetah.triage.tables.schemas import TIMELINE
from cheetah.triage.tables.utf8_path import utf8

# The letter of each column, at its place in "macb".
_TIMES = ("mtime", "atime", "ctime", "crtime")
_LETTERS = "macb"
_WHAT = np.array(
    ["".join(letter if bits >> place & 1 else "." for place, letter in enumerate(_LETTERS)) for bits in range(16)]
)
_ORDER = [("time", "ascending"), ("volume", "ascending"), ("address", "ascending"), ("path", "ascending")]

BATCH_ROWS = 64_000
# Lines sorted at once.
PART_LINES = 400_000
_SAMPLE_ROWS = 200_000

PASSES = 2
"""How often each row is reported: when its lines are divided, and when they are written in order."""

Key = tuple[int, int, str, str]
Passed = collections.abc.Callable[[int], None]


def write(files: pathlib.Path, target: pathlib.Path, passed: Passed = lambda rows: None) -> int:
    """Writes timeline.parquet from files.parquet; returns the number of lines. `passed` is called with the number of
    rows processed."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".timeline-") as scratch:
        borders = _borders(files)
        parts = _dealt(files, borders, pathlib.Path(scratch), passed)
        rows = pq.ParquetFile(utf8(files)).metadata.num_rows
        count = 0
        metadata = pq.read_schema(utf8(files)).metadata or {}
        schema = TIMELINE.with_metadata({key: value for key, value in metadata.items() if key == b"complete"} or None)
        with written(target) as partial, pq.ParquetWriter(utf8(partial), schema, compression="zstd") as writer:
            for number, part in enumerate(parts):
                lines = _merged(part)
                if lines.num_rows:
                    writer.write_table(lines.cast(schema))
                count += lines.num_rows
                passed(rows * (number + 1) // (len(borders) + 1) - rows * number // (len(borders) + 1))
    return count


def _batches(files: pathlib.Path, passed: Passed = lambda rows: None) -> collections.abc.Iterator[pa.Table]:
    """Yields a line for each time of each row."""
    names = ["volume", "address", "path", "size", *_TIMES]
    for rows in pq.ParquetFile(utf8(files)).iter_batches(batch_size=BATCH_ROWS, columns=names):
        columns = [rows.column(name).to_numpy(zero_copy_only=False).astype(np.int64) for name in _TIMES]
        tables = []
        for place, times in enumerate(columns):
            # The first of the columns with the same time stands for all of them.
            new = (
                (times != 0) & ~np.any([times == before for before in columns[:place]], axis=0) if place else times != 0
            )
            where = np.flatnonzero(new)
            bits = np.zeros(len(where), np.int64)
            for other, letter_times in enumerate(columns):
                bits |= (letter_times[where] == times[where]).astype(np.int64) << other
            tables.append(_lines(rows, where, times[where], bits))
        yield pa.concat_tables(tables)
        passed(rows.num_rows)


def _lines(
    rows: pa.RecordBatch, where: npt.NDArray[np.int64], times: npt.NDArray[np.int64], bits: npt.NDArray[np.int64]
) -> pa.Table:
    index = pa.array(where)
    columns = {name: rows.column(name).take(index) for name in ("volume", "address", "path", "size")}
    columns |= {"time": pa.array(times, pa.int64()), "what": pa.array(_WHAT[bits], pa.string())}
    return pa.table([columns[field.name] for field in TIMELINE], schema=TIMELINE)


def _key(lines: pa.Table, row: int) -> Key:
    time, volume, address, path = (lines.column(name)[row].as_py() for name, _ in _ORDER)
    return time, volume, address, path


def _borders(files: pathlib.Path) -> list[Key]:
    """Returns keys that divide the lines into ranges of about PART_LINES."""
    rows = pq.ParquetFile(utf8(files)).metadata.num_rows
    most = 4 * rows
    if most <= PART_LINES:
        return []
    step = max(1, most // _SAMPLE_ROWS)
    samples = []
    skip = 0
    for lines in _batches(files):
        samples.append(lines.take(pa.array(range(skip, lines.num_rows, step), pa.int64())))
        skip = (skip - lines.num_rows) % step
    sample = pa.concat_tables(samples).sort_by(_ORDER)
    parts = -(-most // PART_LINES)
    places = sorted({sample.num_rows * part // parts for part in range(1, parts)})
    return sorted({_key(sample, place) for place in places if 0 < place < sample.num_rows}, key=_comparable)


def _comparable(key: Key) -> tuple[int, int, bytes, bytes]:
    """Returns a key that compares as in Arrow: text by its bytes."""
    return key[0], key[1], key[2].encode(), key[3].encode()


def _dealt(
    files: pathlib.Path, borders: list[Key], scratch: pathlib.Path, passed: Passed
) -> collections.abc.Iterator[pa.Table]:
    """Yields the lines of one range after the other, each range unsorted."""
    if not borders:
        yield pa.concat_tables([TIMELINE.empty_table(), *_batches(files, passed)])
        return
    ends = [_comparable(border) for border in borders]
    paths = [scratch / f"{number}" for number in range(len(borders) + 1)]
    writers = [pa.ipc.new_stream(utf8(path), TIMELINE) for path in paths]
    for lines in _batches(files, passed):
        lines = lines.sort_by(_ORDER).combine_chunks()
        rows = range(lines.num_rows)
        cuts = [bisect.bisect_left(rows, end, key=lambda row: _comparable(_key(lines, row))) for end in ends]
        for writer, start, end in zip(writers, [0, *cuts], [*cuts, lines.num_rows], strict=True):
            if end > start:
                writer.write_table(lines.slice(start, end - start))
    for writer in writers:
        writer.close()
    for path in paths:
        with pa.ipc.open_stream(utf8(path)) as reader:
            yield reader.read_all()
        path.unlink()


def _merged(lines: pa.Table) -> pa.Table:
    """Sorts lines; those with the same time, address and path, from hard links and repeated entries, become one."""
    lines = lines.sort_by(_ORDER).combine_chunks()
    if lines.num_rows < 2:
        return lines
    same = np.ones(lines.num_rows - 1, bool)
    for name, _ in _ORDER:
        column = lines.column(name)
        same &= pc.equal(column.slice(1), column.slice(0, len(column) - 1)).to_numpy(zero_copy_only=False)
    if not same.any():
        return lines
    first = np.flatnonzero(np.concatenate(([True], ~same)))
    what = lines.column("what").to_pylist()
    ends = [*first[1:].tolist(), lines.num_rows]
    merged = [
        _union(what[start:end]) if end - start > 1 else what[start]
        for start, end in zip(first.tolist(), ends, strict=True)
    ]
    kept = lines.take(pa.array(first))
    return kept.set_column(TIMELINE.get_field_index("what"), "what", pa.array(merged, pa.string()))


def _union(whats: list[str]) -> str:
    return "".join(letter if any(letter in what for what in whats) else "." for letter in _LETTERS)
