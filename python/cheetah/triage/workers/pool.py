"""Worker processes on this machine.

They are forked from a process that imports their modules (`preload`) while the hub imports its own.
Each has a pipe to the hub. If a worker dies, or has neither read nor answered for `HANG_S`, another process does its
task again; a task that `ATTEMPTS` workers did not survive becomes a problem of the result.
"""

import collections
import contextlib
import ctypes
import dataclasses
import multiprocessing
import multiprocessing.connection
import multiprocessing.forkserver
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any

from cheetah.placing import Placement
from cheetah.triage.settings import Settings
from cheetah.triage.task import Problem, Result, RowPlacement, Task, Volume

ATTEMPTS = 3
HANG_S = 300.0
LOOK_S = 1.0
"""How often the hub checks on workers, and yields to its caller."""
ENDING_S = 2.0
_PR_SET_PDEATHSIG = 1

Doer = Callable[[Task, Any], Result]


@dataclasses.dataclass
class _WorkerProcess:
    """A worker process as the hub sees it."""

    process: ForkServerProcess
    pipe: Connection
    reads: Any
    """The number of its reads, in shared memory."""
    task: Task | None = None
    since: float = 0.0
    seen: int = -1
    ready: bool = False


def prepare() -> None:
    """Starts the process that workers are forked from, in the background."""
    _context()
    multiprocessing.forkserver.ensure_running()


def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["cheetah.triage.workers.preload"])
    return context


class Pool:
    """`workers` processes that perform tasks on the source at `uri` with `do`. Set `volumes` once they are known."""

    def __init__(self, uri: str, settings: Settings, workers: int = 0, hang_s: float = HANG_S, do: Doer | None = None):
        self._do = do or attempt
        self._context = _context()
        self._uri = uri
        self._settings = settings
        self._hang_s = hang_s
        self._queue: collections.deque[Task] = collections.deque()
        self._attempts: collections.Counter[str] = collections.Counter()
        self.volumes: tuple[Volume, ...] = ()
        self.lost = 0
        """The number of workers that died or were killed."""
        self.placement: Placement | None = None
        self._failed_starts = 0
        self._processes = [self._start() for _ in range(workers or os.cpu_count() or 1)]

    @property
    def workers(self) -> int:
        """The number of workers."""
        return len(self._processes)

    def submit(self, task: Task, first: bool = False) -> None:
        """Schedules a task, ahead of all others if `first`."""
        if first:
            self._queue.appendleft(task)
        else:
            self._queue.append(task)

    def results(self, more: Iterable[Task] = ()) -> Iterator[tuple[Task, Result] | None]:
        """Yields the results of submitted tasks, and then of `more`, from which a task is taken only when a worker is
        idle. Yields None now and then while no result arrives. Ends when all tasks are done."""
        tasks = iter(more)
        while True:
            self._give_out(tasks)
            if not any(worker.task for worker in self._processes) and not self._queue:
                return
            yield from self._collect()

    def close(self) -> None:
        """Ends the workers, even during a task."""
        for worker in self._processes:
            worker.pipe.close()
            worker.process.terminate()
        for worker in self._processes:
            worker.process.join(ENDING_S)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        self._processes = []

    def _start(self) -> _WorkerProcess:
        ours, theirs = self._context.Pipe()
        reads = self._context.RawValue(ctypes.c_uint64, 0)
        arguments = (theirs, reads, self._uri, self._settings, self._do)
        process = self._context.Process(target=_work, args=arguments, name="cheetah-triage", daemon=True)
        process.start()
        theirs.close()
        return _WorkerProcess(process, ours, reads)

    def _give_out(self, tasks: Iterator[Task]) -> None:
        for worker in self._processes:
            if worker.task is not None:
                continue
            if (task := self._next(tasks)) is None:
                return
            worker.task, worker.since, worker.seen = task, time.monotonic(), -1
            # `_collect` notices a worker that is gone.
            with contextlib.suppress(OSError):
                worker.pipe.send((task, self.volumes))

    def _next(self, tasks: Iterator[Task]) -> Task | None:
        if not self._queue and (task := next(tasks, None)) is not None:
            return task
        # Making the next task may have submitted others.
        return self._queue.popleft() if self._queue else None

    def _collect(self) -> Iterator[tuple[Task, Result] | None]:
        """Waits a while for results, and yields them."""
        ready = multiprocessing.connection.wait([worker.pipe for worker in self._processes], LOOK_S)
        for number, worker in enumerate(self._processes):
            if worker.pipe in ready:
                try:
                    answer = worker.pipe.recv()
                except (EOFError, OSError):
                    yield from self._replace(number, "its worker died")
                    continue
                if answer is None:
                    worker.ready = True
                elif worker.task is not None:
                    task, worker.task = worker.task, None
                    yield task, answer
            elif worker.task is not None and self._hangs(worker):
                yield from self._replace(number, f"its worker did nothing for {self._hang_s:.0f} s")
        if not ready:
            yield None

    def _hangs(self, worker: _WorkerProcess) -> bool:
        """Returns whether a worker has neither read nor answered for too long."""
        now = time.monotonic()
        if worker.reads.value != worker.seen:
            worker.seen, worker.since = worker.reads.value, now
        return now - worker.since > self._hang_s

    def _replace(self, number: int, why: str) -> Iterator[tuple[Task, Result]]:
        """Replaces a lost worker. Its task is done again, unless that was tried often."""
        worker = self._processes[number]
        task = worker.task
        worker.pipe.close()
        worker.process.kill()
        worker.process.join()
        self.lost += 1
        if not worker.ready:
            self._failed_starts += 1
            if self._failed_starts >= ATTEMPTS * len(self._processes):
                raise OSError(f"worker processes end before they start working (exit status {worker.process.exitcode})")
        self._processes[number] = self._start()
        if task is None:
            return
        self._attempts[task.id] += 1
        if self._attempts[task.id] < ATTEMPTS:
            self._queue.appendleft(task)
        else:
            yield task, lost(task, f"{why}, {ATTEMPTS} times")


def lost(task: Task, why: str) -> Result:
    """Returns the result of a task that could not be done. Of a batch, every file or directory is tried alone, so that
    one that kills workers takes no others with it."""
    if task.stage == "content" and len(task.what) > 1:
        return Result(tasks=[Task("content", task.volume, (one,)) for one in task.what], failed=True)
    if task.stage == "listing" and len(task.what) > 1:
        # Each start alone, at its place in this task.
        alone = [Task("listing", task.volume, (one,)) for one in task.what]
        places = [RowPlacement(number, 0, number, 0) for number in range(len(alone))]
        return Result(tasks=alone, places=places, starts=[0] * len(alone), failed=True)
    path = None
    if task.stage == "listing":
        path = "/" + task.what[0][1].rstrip("/")
    elif task.stage == "content":
        path = task.entries()[0].path
    return Result(
        problems=[Problem(task.stage, f"a task was given up: {why}", task.volume, path, gap=True)], failed=True
    )


def end_with_parent() -> None:
    """Asks the kernel to kill this process when its parent ends for any reason."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _work(pipe: Connection, reads: Any, uri: str, settings: Settings, do: Doer) -> None:
    """The main loop of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()

    def beat() -> None:
        reads.value += 1

    from cheetah.triage.reading.worker import Worker

    worker: Worker | None = None
    with contextlib.suppress(EOFError, OSError):
        pipe.send(None)
        while True:
            task, volumes = pipe.recv()
            try:
                worker = worker or Worker(uri, settings, beat=beat)
                worker.volumes = volumes
                result = do(task, worker)
            except OSError as error:
                result = lost(task, f"the source could not be opened: {error}")
            pipe.send(result)


def attempt(task: Task, worker: Any) -> Result:
    """Performs a task. An exception becomes a problem of the result instead of ending the worker."""
    from cheetah.triage.workers.perform import perform

    try:
        return perform(task, worker)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return lost(task, f"{type(error).__name__}: {error} ({os.path.basename(where.filename)}:{where.lineno})")
