"""The journal of completed tasks: one line for each, written when its rows and findings are stored.

A later run of the same triage skips the tasks recorded here. An incomplete last line is ignored, and so is a line
whose part has changed. Lines are made durable every `SYNC_S`; tasks lost in a power cut are done again.

The journal is not signed, and its lines name the digests of everything that was found. So the custody log vouches for
it: a checkpoint there has its length and its SHA-256. Only what the last checkpoint vouches for is taken over.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import time
from collections.abc import Callable
from typing import Any

from cheetah.durable import for_owner, refuse_foreign, refuse_other_content
from cheetah.error import Error
from cheetah.triage.settings import MAX_FILE_BYTES
from cheetah.triage.tables.store import Parts, findings_table
from cheetah.triage.task import CompletedTask, Problem, Result, RowPlacement, Task, Volume, findings_of, rows_of

SYNC_S = 1.0
CHECKPOINT_S = 30.0
"""The longest time between checkpoints. The first come sooner, so that a short run has some."""
EVIDENCE = 3


@dataclasses.dataclass(frozen=True)
class Vouched:
    """The part of a journal that a custody log vouches for."""

    length: int
    """In bytes, from the start."""
    sha256: str


NOTHING = Vouched(0, hashlib.sha256().hexdigest())


class Journal:
    """The journal of a directory. `known` are the tasks completed when it was opened: of those in the file, the ones that
    are `vouched` for; all of them without a custody log. `witness` records what to vouch for from now on. Raises
    `cheetah.Error` if that part has changed."""

    def __init__(
        self,
        path: pathlib.Path,
        parts: Parts,
        max_file: int = MAX_FILE_BYTES,
        vouched: Vouched | None = None,
        witness: Callable[[Vouched], None] | None = None,
    ):
        self._parts = parts
        self._max_file = max_file
        refuse_foreign(path, links_max=1)
        self._witness = witness
        self._digest = hashlib.sha256()
        self._length = 0
        self._torn = False
        self.known = self._load(path, vouched)
        self._file = open(path, "ab", buffering=0, opener=for_owner)
        self._synced_s = self._vouched_s = time.monotonic()
        self._pause_s = SYNC_S
        self._vouched_length = 0
        self._checkpoint()

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
        done = CompletedTask(task.id, task.stage, unreadable=_unreadable(result, self._max_file), **result.outcome())
        # Those that replace a failed task are tried instead of it.
        done.failed = result.failed and not result.tasks
        if result.rows is not None:
            done.rows, done.row_count = self._parts.write(rows_of(task.id), result.rows), result.rows.num_rows
        if result.findings:
            done.findings = self._parts.write(findings_of(task.id), findings_table(result.findings))
            done.finding_count = len(result.findings)
        if not result.failed:
            self._append(json.dumps(_plain(done), separators=(",", ":")).encode("ascii") + b"\n")
            if time.monotonic() - self._synced_s > SYNC_S:
                self.sync()
        return done

    def sync(self) -> None:
        """Makes all lines durable."""
        os.fsync(self._file.fileno())
        self._synced_s = time.monotonic()
        if self._synced_s - self._vouched_s >= self._pause_s:
            self._checkpoint()

    def close(self) -> None:
        """Closes the journal at the end of a run."""
        self.sync()
        self._checkpoint()
        self._file.close()

    def _checkpoint(self) -> None:
        """Has what is durable vouched for."""
        if self._witness is not None and self._length != self._vouched_length:
            self._witness(Vouched(self._length, self._digest.hexdigest()))
            self._pause_s = min(2 * self._pause_s, CHECKPOINT_S)
        self._vouched_s, self._vouched_length = time.monotonic(), self._length

    def _append(self, line: bytes) -> None:
        """Appends a line; if that fails, on a full disk, the file is as before, now or before the next line."""
        if self._torn:
            os.ftruncate(self._file.fileno(), self._length)
            self._torn = False
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError:
            self._torn = True
            with contextlib.suppress(OSError):
                os.ftruncate(self._file.fileno(), self._length)
                self._torn = False
            raise
        self._digest.update(line)
        self._length += len(line)

    def _load(self, path: pathlib.Path, vouched: Vouched | None) -> dict[str, CompletedTask]:
        known: dict[str, CompletedTask] = {}
        if not path.exists():
            return known
        if vouched is not None:
            _check(path, vouched)
        # What is not vouched for is cut off, which must not happen to another file.
        refuse_other_content(path, b'{"id":"')
        with open(path, "rb") as file:
            for line in file:
                after = self._length + len(line)
                if not line.endswith(b"\n") or vouched is not None and after > vouched.length:
                    break
                try:
                    done = _done(json.loads(line))
                except (ValueError, TypeError, KeyError):
                    break
                known[done.id] = done
                self._digest.update(line)
                self._length = after
        os.truncate(path, self._length)
        return known


def _check(path: pathlib.Path, vouched: Vouched) -> None:
    """Raises an error if a journal does not begin with what is vouched for. One that is empty has nothing to take over."""
    digest, rest = hashlib.sha256(), vouched.length
    with open(path, "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return
        while rest and (piece := file.read(min(rest, 1 << 20))):
            digest.update(piece)
            rest -= len(piece)
    if rest or digest.hexdigest() != vouched.sha256:
        raise Error(
            f"the journal {path} is not the one that the custody log of the triage vouches for: it was changed; keep the "
            "folder, and run the triage in another one, or start over with --fresh",
            EVIDENCE,
        )


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
    plain: dict[str, Any] = {"id": done.id, "stage": done.stage}
    plain |= {field.name: value for field in dataclasses.fields(done) if (value := getattr(done, field.name))}
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
