"""Assembles the listing from the results of tasks, in the order of `fls`.

Nothing is sorted: each task knows where the rows of further tasks belong. Only a few parts are in memory at a time.
"""

import collections
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping

import pyarrow as pa

from cheetah.durable import written
from cheetah.triage.tables.schemas import LISTING
from cheetah.triage.tables.store import Parts, Writer
from cheetah.triage.task import CompletedTask, Task, rows_of

PARTS_HELD = 32


class Listing:
    """The listings of all volumes in order, starting from their first tasks. `done` maps task ids to results."""

    def __init__(self, parts: Parts, done: Mapping[str, CompletedTask], first_tasks: Iterable[Task]):
        self._parts = parts
        self._done = done
        self._first_tasks = list(first_tasks)
        self._held: collections.OrderedDict[str, pa.Table] = collections.OrderedDict()

    def is_whole(self) -> bool:
        """Returns whether all tasks of the listing are done."""
        left = list(self._first_tasks)
        while left:
            done = self._done.get(left.pop().id)
            if done is None or done.failed:
                return False
            left.extend(done.tasks)
        return True

    def tables(self) -> Iterator[pa.Table]:
        """Yields the rows in order, without those of unfinished tasks."""
        for task in self._first_tasks:
            yield from self._of_start(task, 0)

    def _of_start(self, task: Task, start: int) -> Iterator[pa.Table]:
        done = self._done.get(task.id)
        if done is None or start >= len(done.starts):
            return
        row = done.starts[start]
        end = done.starts[start + 1] if start + 1 < len(done.starts) else done.row_count
        for place in done.places:
            if place.within == start:
                yield from self._rows(done, row, place.row)
                row = place.row
                yield from self._of_start(done.tasks[place.task], place.start)
        yield from self._rows(done, row, end)

    def _rows(self, done: CompletedTask, begin: int, end: int) -> Iterator[pa.Table]:
        if begin >= end:
            return
        table = self._held.get(done.id)
        if table is None:
            table = _with_places(self._parts.read(rows_of(done.id)))
        self._held[done.id] = table
        self._held.move_to_end(done.id)
        if len(self._held) > PARTS_HELD:
            self._held.popitem(last=False)
        yield table.slice(begin, end - begin)

    def write(
        self, rows_path: pathlib.Path, bodyfile_path: pathlib.Path, wrote: Callable[[int], None] = lambda rows: None
    ) -> None:
        """Writes the rows as one file for `store.Rows`, and the bodyfile. `wrote` is called with the number of new
        rows."""
        with written(rows_path) as rows_partial, written(bodyfile_path) as partial:
            writer = Writer(rows_partial, LISTING)
            with open(partial, "xb") as bodyfile:
                for table in self.tables():
                    writer.write(table)
                    for chunk in table.column("line").chunks:
                        bodyfile.writelines(line + b"\n" for line in chunk.to_pylist())
                    wrote(table.num_rows)
            writer.close()


def _with_places(table: pa.Table) -> pa.Table:
    """Returns the rows of a listing; those that an earlier version wrote say of no file where it begins."""
    if "start" in table.column_names:
        return table
    return table.append_column(LISTING.field("start"), pa.nulls(table.num_rows, pa.int64()))
