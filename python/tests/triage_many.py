"""A triage of many made-up files, and its peak memory: `python triage_many.py FILES FOLDER`.

All of it is real but the workers: their results are made here.
"""

import collections
import pathlib
import sys
import threading
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from cheetah.triage.tables import store

# Fewer files are in memory at a time, since the number of files is smaller.
store.BATCH_ROWS = 1024

from cheetah.triage.hub import closing, run  # noqa: E402
from cheetah.triage.settings import Settings  # noqa: E402
from cheetah.triage.tables import timeline  # noqa: E402
from cheetah.triage.tables.schemas import CONTENT, LISTING  # noqa: E402
from cheetah.triage.task import Result, RowPlacement, Task, Volume  # noqa: E402

TASK_ROWS = 2000


class Made:
    """In place of workers: a listing of many directories, and different content for each file."""

    workers = 2
    lost = 0
    placement = None

    def __init__(self, files: int):
        self.volumes: tuple[Volume, ...] = ()
        self._directories = files // TASK_ROWS
        self._queue: collections.deque[Task] = collections.deque()

    def submit(self, task: Task, first: bool = False) -> None:
        (self._queue.appendleft if first else self._queue.append)(task)

    def results(self, more: Iterable[Task] = ()) -> Iterator[tuple[Task, Result] | None]:
        tasks = iter(more)
        while (task := self._queue.popleft() if self._queue else next(tasks, None)) is not None:
            yield task, self._do(task)

    def close(self) -> None:
        self._queue.clear()

    def _do(self, task: Task) -> Result:
        match task.stage:
            case "volumes":
                return Result(volumes=[Volume(0, 0, 1 << 20, "ext4", "made up", root_inode=2, inodes=1 << 24)])
            case "listing" if task.what[0][0] == 2:
                starts = [[number + 3, f"folder{number}/", [number + 3], False] for number in range(self._directories)]
                places = [RowPlacement(0, 0, number, 0) for number in range(self._directories)]
                further = [Task("listing", 0, (start,)) for start in starts]
                return Result(LISTING.empty_table(), tasks=further, places=places, starts=[0], directories=1)
            case "listing":
                return Result(listed(task.what[0][0] - 3), starts=[0], directories=1)
        return Result(read(task), bytes_read=1)


def listed(directory: int) -> pa.Table:
    """The files of a directory."""
    numbers = np.arange(directory * TASK_ROWS, (directory + 1) * TASK_ROWS)
    names = [f"some document {number}.docx" for number in numbers]
    texts = {"kind": "r", "name_kind": "r", "mode": "rrw-r--r--", "extension": "docx"}
    columns = {name: pa.array([value] * TASK_ROWS) for name, value in texts.items()}
    columns |= {name: pa.array(np.full(TASK_ROWS, value)) for name, value in (("deleted", False), ("allocated", True))}
    columns |= {"orphan": columns["deleted"], "name": pa.array(names), "inode": pa.array(numbers)}
    columns["path"] = pa.array([f"/folder{directory}/{name}" for name in names])
    columns["address"] = columns["inode"].cast(pa.string())
    columns["line"] = columns["path"].cast(pa.binary())
    for place, name in enumerate(("volume", "size", "mtime", "atime", "ctime", "crtime", "uid", "gid")):
        columns[name] = pa.array(numbers * place if place else numbers * 0)
    rows = [columns.get(field.name, pa.nulls(TASK_ROWS)).cast(field.type) for field in LISTING]
    return pa.table(rows, schema=LISTING)


def read(task: Task) -> pa.Table:
    """The results of some files."""
    rows = [one.row for one in task.entries()]
    columns = {"row": pa.array(rows), "read_state": pa.array(["whole"] * len(rows))}
    columns |= {name: pa.array([f"{row:0{digits}x}" for row in rows]) for name, digits in (("md5", 32), ("sha256", 64))}
    columns |= {name: pa.array([False] * len(rows)) for name in ("type_mismatch", "known")}
    columns |= {name: pa.array([0] * len(rows)) for name in ("hits", "bytes_read")}
    columns["type"] = pa.array(["docx"] * len(rows))
    nulls = pa.nulls(len(rows))
    return pa.table([columns.get(field.name, nulls).cast(field.type) for field in CONTENT], schema=CONTENT)


class Memory(threading.Thread):
    """The peak private memory of this process, in bytes, without mapped files."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most = 0
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.005):
            status = pathlib.Path("/proc/self/status").read_text(encoding="ascii")
            self.most = max(self.most, int(status.split("RssAnon:")[1].split()[0]) << 10)

    def end(self) -> int:
        """The peak."""
        self._over.set()
        self.join()
        return self.most


def main(files: int, folder: pathlib.Path) -> None:
    """Prints the number of rows, and the bytes of memory."""
    timeline.BATCH_ROWS, timeline.PART_LINES, timeline._SAMPLE_ROWS = 4096, 16_000, 8_000
    run._start_workers = lambda uri, settings: Made(files)  # type: ignore[assignment]
    source = folder / "source.raw"
    source.write_bytes(bytes(1 << 20))
    memory = Memory()
    memory.start()
    code, summary = run.Run(Settings(str(source), str(folder / "out")), lambda event: None).go()
    assert code == closing.DONE, summary["problems"]
    print(summary["counts"]["files"], memory.end())


if __name__ == "__main__":
    main(int(sys.argv[1]), pathlib.Path(sys.argv[2]))
