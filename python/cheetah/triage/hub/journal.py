"""The journal of completed tasks: one line for each, written when its rows and findings are stored.

A later run of the same triage skips the tasks recorded here. An incomplete last line is ignored, and so is a line
whose part has changed. Lines are made durable every `SYNC_S`; tasks lost in a power cut are done again.
"""

import dataclasses
import json
import os
import pathlib
import time
from typing import Any

from cheetah.triage.settings import MAX_FILE_BYTES
from cheetah.triage.tables.store import Parts, findings_table
from cheetah.triage.task import Problem, Result, RowPlacement, Task, Volume

SYNC_S = 1.0


@dataclasses.dataclass
class CompletedTask:
    """A completed task; its rows and findings are named by their parts."""

    id: str
    stage: str
    rows: str | None = None
    """The digest of its rows, if it has any."""
    findings: str | None = None
    row_count: int = 0
    finding_count: int = 0
    tasks: list[Task] = dataclasses.field(default_factory=list)
    places: list[RowPlacement] = dataclasses.field(default_factory=list)
    starts: list[int] = dataclasses.field(default_factory=list)
    volumes: list[Volume] = dataclasses.field(default_factory=list)
    problems: list[Problem] = dataclasses.field(default_factory=list)
    directories: int = 0
    bytes_read: int = 0
    unreadable: bool = False
    """Something could not be read: worth another try when the run resumes."""
    failed: bool = False


class Journal:
    """The journal of a directory. `known` are the tasks completed when it was opened."""

    def __init__(self, path: pathlib.Path, parts: Parts, max_file: int = MAX_FILE_BYTES):
        self._parts = parts
        self._max_file = max_file
        self.known = self._load(path)
        self._file = open(path, "ab", buffering=0)
        self._synced_s = time.monotonic()

    def find(self, task: Task) -> CompletedTask | None:
        """Returns the record of a task that need not be done again."""
        done = self.known.get(task.id)
        if done is None or done.unreadable:
            return None
        for name, digest in ((rows_of(done.id), done.rows), (findings_of(done.id), done.findings)):
            if digest is not None and not self._parts.is_whole(name, digest):
                return None
        return done

    def add(self, task: Task, result: Result) -> CompletedTask:
        """Stores the result of a task. A failed task is not recorded, so it is tried again."""
        done = CompletedTask(
            task.id, task.stage, tasks=result.tasks, places=result.places, starts=result.starts, volumes=result.volumes,
            problems=result.problems, bytes_read=result.bytes_read, directories=result.directories, unreadable=_unreadable(result, self._max_file),
            failed=result.failed and not result.tasks,
        )  # fmt: skip
        if result.rows is not None:
            done.rows, done.row_count = self._parts.write(rows_of(task.id), result.rows), result.rows.num_rows
        if result.findings:
            done.findings = self._parts.write(findings_of(task.id), findings_table(result.findings))
            done.finding_count = len(result.findings)
        if not result.failed:
            self._file.write(json.dumps(_plain(done), separators=(",", ":")).encode("ascii") + b"\n")
            if time.monotonic() - self._synced_s > SYNC_S:
                self.sync()
        return done

    def sync(self) -> None:
        """Makes all lines durable."""
        os.fsync(self._file.fileno())
        self._synced_s = time.monotonic()

    def close(self) -> None:
        """Closes the journal at the end of a run."""
        self.sync()
        self._file.close()

    def _load(self, path: pathlib.Path) -> dict[str, CompletedTask]:
        known: dict[str, CompletedTask] = {}
        whole = 0
        if path.exists():
            with open(path, "rb") as file:
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    try:
                        done = _done(json.loads(line))
                    except (ValueError, TypeError, KeyError):
                        break
                    known[done.id] = done
                    whole += len(line)
            os.truncate(path, whole)
        return known


def rows_of(task_id: str) -> str:
    """Returns the name of the part with a task's rows."""
    return f"{task_id}.rows"


def findings_of(task_id: str) -> str:
    """Returns the name of the part with a task's findings."""
    return f"{task_id}.findings"


def _unreadable(result: Result, max_file: int) -> bool:
    """Returns whether something is missing that should have been read: a range of the source, or more of a file than
    its limit cuts off."""
    if any(problem.offset is not None for problem in result.problems):
        return True
    if result.rows is None or "read_state" not in result.rows.column_names:
        return False
    rows = zip(result.rows["read_state"].to_pylist(), result.rows["bytes_read"].to_pylist(), strict=True)
    return any(
        state in ("unreadable", "unread") or (state == "partial" and (size or 0) < max_file) for state, size in rows
    )


def _plain(done: CompletedTask) -> dict[str, Any]:
    """Returns the JSON form, without empty fields."""
    plain = {field.name: getattr(done, field.name) for field in dataclasses.fields(done) if getattr(done, field.name)}
    if done.tasks:
        plain["tasks"] = [[task.stage, task.volume, task.what] for task in done.tasks]
    if done.places:
        plain["places"] = [dataclasses.astuple(place) for place in done.places]
    for name in ("volumes", "problems"):
        if name in plain:
            plain[name] = [dataclasses.asdict(one) for one in plain[name]]
    return plain


def _done(plain: dict[str, Any]) -> CompletedTask:
    plain["tasks"] = [Task(stage, volume, tuple(what)) for stage, volume, what in plain.get("tasks", ())]
    plain["places"] = [RowPlacement(*place) for place in plain.get("places", ())]
    plain["volumes"] = [Volume(**one) for one in plain.get("volumes", ())]
    plain["problems"] = [Problem(**one) for one in plain.get("problems", ())]
    return CompletedTask(**plain)
