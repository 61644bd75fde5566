"""Workers of a Dask cluster: the same tasks on more than one machine.

Each worker opens the source itself, so all of them read a drive's nodes directly; hash lists and rules must lie at
the same paths on every machine. Dask notices lost workers and reschedules their tasks; a task that several workers
did not survive becomes a problem of the result, as in a pool.

A result belongs to one source, one set of lists and one version of the programs: a worker that differs ends the run.
A worker that has read nothing for `HANG_S` ends itself, and another does its task.

A task whose bytes lie on few of the hosts of a drive is placed at the workers there, if others than these do not do it sooner:
`cheetah.placing` says when. A task that failed is tried again anywhere.
"""

import collections
import contextlib
import dataclasses
import faulthandler
import queue
import secrets
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import dask.config  # type: ignore[import-untyped,unused-ignore]
import distributed  # type: ignore[import-untyped,unused-ignore]
from distributed.scheduler import KilledWorker

from cheetah import _native
from cheetah.device import Part
from cheetah.placing import Placement, Placing, in_turn
from cheetah.triage.reading import shared_source
from cheetah.triage.search import atom_map
from cheetah.triage.settings import LISTS, Settings
from cheetah.triage.task import Result, Task, Volume
from cheetah.triage.versions import deciding
from cheetah.triage.workers.pool import ATTEMPTS, HANG_S, LOOK_S, attempt, lost
from cheetah.triage.workers.room_security import room_security

CONNECT_S = 5
WORKERS_S = 30.0
"""How long to wait for the first worker, or for one to return after all have gone."""
TASKS_A_WORKER = 3
"""Tasks in flight for each thread of a worker, so that it never waits for the next."""

Future: TypeAlias = Any

_mine = threading.local()


@dataclasses.dataclass(frozen=True)
class ClusterTerms:
    """The facts that must be equal on every machine."""

    source: dict[str, Any]
    binding: dict[str, Any]
    versions: dict[str, str]

    @classmethod
    def of(cls, uri: str, settings: Settings) -> "ClusterTerms":
        """Returns the terms of this machine. Raises OSError if the source or a list is missing."""
        return cls(shared_source.identity(uri, uri), settings.binding(), deciding())

    def different(self, other: "ClusterTerms") -> str | None:
        """Returns the difference, in a word or two."""
        if not shared_source.is_same(self.source, other.source):
            return "source"
        for name, value in self.binding.items():
            if other.binding.get(name) != value:
                return f"--{name}" if name in LISTS else name
        changed = [name for name in self.versions if other.versions.get(name) != self.versions[name]]
        return f"version of {', '.join(changed)}" if changed else None


@dataclasses.dataclass(frozen=True)
class Refusal:
    """A worker's answer when it must not do a task: one sentence."""

    sentence: str


class Refused(OSError):
    """A worker may not take part."""


class Watch:
    """Ends a worker's process that has not read for `HANG_S`, even when a library hangs with Python's lock held."""

    def __init__(self) -> None:
        self._since_s = 0.0

    def __call__(self) -> None:
        """Notes a read."""
        if time.monotonic() - self._since_s > HANG_S / 60:
            self.begin()

    def begin(self) -> None:
        """Restarts the time-out."""
        self._since_s = time.monotonic()
        faulthandler.dump_traceback_later(HANG_S, exit=True, file=sys.__stderr__ or sys.stderr)


def connected(scheduler: str) -> Any:
    """Returns a client of the scheduler at an address. Raises OSError if none answers there."""
    try:
        connect: Any = distributed.Client
        # In the room, as `python3 -m cheetah.dask` runs clusters; anything else is Dask's own configuration.
        options = {"security": room_security()} if scheduler.startswith("tls://") and _in_room() else {}
        return connect(scheduler, timeout=CONNECT_S, set_as_default=False, **options)
    except (OSError, ValueError, TypeError) as error:
        raise OSError(f"no Dask scheduler answers at {scheduler}: {error}") from error


def without_workers(scheduler: str) -> OSError:
    """Returns the error of a scheduler at which no worker is."""
    start = f"python3 -m cheetah.dask worker {scheduler}"
    return OSError(f"the Dask scheduler at {scheduler} has no workers; start some with `{start}`")


class Cluster:
    """The workers of the scheduler at an address. Raises OSError if there are none."""

    def __init__(self, scheduler: str, uri: str, settings: Settings, parts: Sequence[Part] = ()):
        self._client = connected(scheduler)
        self._uri = uri
        self._settings = settings
        self._terms = ClusterTerms.of(uri, settings)
        self._run = secrets.token_hex(8)
        self._queue: collections.deque[Task] = collections.deque()
        self._under_way: dict[Future, Task] = {}
        self._placing = Placing(parts)
        self._placed_at: dict[Future, tuple[str, ...]] = {}
        self._endings: queue.SimpleQueue[Future] = queue.SimpleQueue()
        self._tries: collections.Counter[str] = collections.Counter()
        self._atoms: Future | None = None
        """Where atoms of rules are, at the workers; None if that is not known."""
        self.volumes: tuple[Volume, ...] = ()
        self.lost = 0
        self.workers = self._count()
        self._alone_since: float | None = None
        until = time.monotonic() + WORKERS_S
        while not self.workers:
            if time.monotonic() > until:
                self._client.close()
                raise without_workers(scheduler)
            time.sleep(0.1)
            self.workers = self._count()

    def submit(self, task: Task, first: bool = False) -> None:
        """Schedules a task, ahead of all others if `first`."""
        if first:
            self._queue.appendleft(task)
        else:
            self._queue.append(task)

    def results(self, more: Iterable[Task] = ()) -> Iterator[tuple[Task, Result] | None]:
        """Yields results as `pool.Pool.results` does."""
        tasks = self._spread(iter(more))
        while True:
            self._give_out(tasks)
            if not self._under_way:
                if self._queue:
                    continue
                return
            ended = self._ended()
            for future in ended:
                if (result := self._result(future)) is not None:
                    yield result
            if not ended:
                self._watch()
                yield None

    @property
    def placement(self) -> Placement:
        """How many tasks were placed so far; an attempt counts as one."""
        return self._placing.placement

    def close(self) -> None:
        """Disconnects from the cluster, which continues; tasks in flight are dropped."""
        with contextlib.suppress(OSError, TimeoutError):
            self._client.cancel(list(self._under_way), force=True)
        self._under_way.clear()
        self._client.close()

    def _count(self) -> int:
        """Returns the number of threads of all workers, and notes which there are."""
        threads: dict[str, int] = self._client.nthreads()
        self._placing.workers_are(threads)
        return sum(threads.values())

    def _spread(self, tasks: Iterator[Task]) -> Iterator[Task]:
        """Yields the tasks; those that search unallocated space in turn for each place, so that no host has all the work at
        first. Files keep their order, which is that of their rank."""
        for first in tasks:
            if first.stage == "unallocated":
                yield from in_turn([first, *tasks], lambda task: self._placing.workers_of(task.ranges))
                return
            yield first

    def _give_out(self, tasks: Iterator[Task]) -> None:
        while len(self._under_way) < TASKS_A_WORKER * max(1, self.workers):
            task = None if self._queue else next(tasks, None)
            if task is None:
                if not self._queue:
                    return
                task = self._queue.popleft()
            self._tries[task.id] += 1
            # Not where it failed before, perhaps.
            ranges = task.ranges if self._tries[task.id] == 1 else ()
            workers = self._placing.take(ranges, TASKS_A_WORKER)
            # A preference: a worker that leaves makes no task wait, and idle ones take tasks from others.
            where: dict[str, Any] = {"workers": list(workers), "allow_other_workers": True} if workers else {}
            future = self._client.submit(
                _work, task, self.volumes, self._uri, self._settings, self._run, self._terms, self._handed_atoms(),
                key=f"cheetah-{self._run}-{task.stage}-{task.id}-{self._tries[task.id]}", pure=False, **where,
            )  # fmt: skip
            self._under_way[future] = task
            if workers:
                self._placed_at[future] = workers
            future.add_done_callback(self._endings.put)

    def _handed_atoms(self) -> Future | None:
        """Hands the workers where atoms of rules are, once the nodes have searched for them."""
        settings = self._settings
        if settings.at_nodes and self._atoms is None:
            found = atom_map.AtomMap.load(atom_map.path_in(settings.out))
            # Without workers, they are handed later. A worker that has none reads every file, with the same result.
            with contextlib.suppress(TimeoutError):
                # At all workers, so that the loss of one costs nothing.
                self._atoms = None if found is None else self._client.scatter(found, broadcast=True)
        return self._atoms

    def _ended(self) -> list[Future]:
        """Waits a while for a task to end, and returns those that have."""
        ended: list[Future] = []
        with contextlib.suppress(queue.Empty):
            ended.append(self._endings.get(timeout=LOOK_S))
            while True:
                ended.append(self._endings.get_nowait())
        return [future for future in ended if future in self._under_way]

    def _result(self, future: Future) -> tuple[Task, Result] | None:
        """Returns the result of a task, or None if it is to be done again."""
        task = self._under_way.pop(future)
        if workers := self._placed_at.pop(future, None):
            self._placing.give_back(workers)
        try:
            result: Result | Refusal = future.result()
            if isinstance(result, Refusal):
                raise Refused(result.sentence)
            return task, result
        except Refused:
            raise
        except KilledWorker:
            why = "its worker died, several times"
        except distributed.CancelledError:
            why = "the scheduler dropped it"
            # As it does if all workers that had the atoms are gone.
            self._atoms = None
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
        self.lost += 1
        if self._tries[task.id] < ATTEMPTS:
            self._queue.appendleft(task)
            return None
        return task, lost(task, why)

    def _watch(self) -> None:
        """Notes workers that join and leave. Raises OSError when there have been none for too long."""
        self.workers = self._count()
        if self.workers:
            self._alone_since = None
            return
        now = time.monotonic()
        self._alone_since = self._alone_since or now
        if now - self._alone_since > WORKERS_S:
            raise OSError(
                "all workers of the Dask cluster are gone; start some, and run the same command again to resume"
            )


def _in_room() -> bool:
    """Returns whether this process is in a room, and Dask has no certificates of its own."""
    return dask.config.get("distributed.comm.tls.ca-file") is None and _native.credential_file() is not None


def _work(
    task: Task,
    volumes: tuple[Volume, ...],
    uri: str,
    settings: Settings,
    run: str,
    terms: ClusterTerms,
    atoms: atom_map.AtomMap | None,
) -> Result | Refusal:
    """Runs at a worker; each of its threads keeps the source open for the whole run. `atoms` says where atoms of rules are, once that is
    known."""
    from cheetah.triage.reading.worker import Worker

    kept: tuple[str, Any, Watch] | None = getattr(_mine, "kept", None)
    if kept is None or kept[0] != run:
        if kept is not None:
            kept[1].close()
        _mine.kept = None
        try:
            if different := terms.different(ClusterTerms.of(uri, settings)):
                return Refusal(
                    f"the worker on {socket.gethostname()} has another {different} than the machine that started the run"
                )
            watch = Watch()
            kept = (run, Worker(uri, settings, beat=watch), watch)
        except OSError as error:
            return lost(task, f"the source could not be opened: {error}")
        _mine.kept = kept
    _, worker, watch = kept
    worker.volumes = volumes
    worker.keep["atoms"] = atoms
    watch.begin()
    try:
        return attempt(task, worker)
    finally:
        faulthandler.cancel_dump_traceback_later()
