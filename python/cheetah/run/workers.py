"""The workers of a run: those of a Dask scheduler, or threads of this process. Both have the same methods."""

import concurrent.futures
import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from cheetah.device import Part as SourcePart
from cheetah.placing import Placement, Placing
from cheetah.run import at_worker
from cheetah.run.at_worker import Job, Left
from cheetah.run.parts import Part
from cheetah.triage.workers import of_clusters

PIECE_BYTES = 16 << 20
WORKERS_S = 30.0
"""How long to wait for the first worker."""
ATTEMPTS = 3
"""How often a part is begun whose worker was lost."""


class Workers(Protocol):
    """Where programs run."""

    count: int

    @property
    def placement(self) -> Placement | None:
        """How many parts were placed near their bytes; None if all programs run on this machine."""

    def perform(self, job: Job, parts: list[Part]) -> "Iterator[tuple[Part, Left | str]]":
        """Yields each part as it ends: what is left of it, or why nothing is."""

    def fetch(self, left: Left) -> Iterator[bytes]:
        """Yields the archive of a part, and has it removed."""

    def end(self, job: Job) -> None:
        """Has everything of a run removed."""


class Here:
    """Threads of this process, which wait for the programs that they start."""

    def __init__(self, count: int) -> None:
        self.count = count or os.cpu_count() or 1
        self.placement: Placement | None = None

    def perform(self, job: Job, parts: list[Part]) -> "Iterator[tuple[Part, Left | str]]":
        """Runs as many programs at once as there are workers."""
        pool = concurrent.futures.ThreadPoolExecutor(self.count)
        try:
            running = {pool.submit(at_worker.perform, job, part): part for part in parts}
            for future in concurrent.futures.as_completed(running):
                yield running[future], future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def fetch(self, left: Left) -> Iterator[bytes]:
        """Reads the archive."""
        yield from _pieces(left, lambda offset: at_worker.read(left.archive, offset, PIECE_BYTES))
        at_worker.forget(left.archive)

    def end(self, job: Job) -> None:
        """Unmounts."""
        at_worker.end(job.run)


class Cluster:
    """The workers of the scheduler at an address. `held` are the parts of the source with the hosts that hold them, if these are
    known. Raises OSError if there are no workers."""

    def __init__(self, scheduler: str, held: Sequence[SourcePart] = ()) -> None:
        clusters = of_clusters()
        self._client: Any = clusters.connected(scheduler)
        until = time.monotonic() + WORKERS_S
        while not (count := len(self._client.nthreads())):
            if time.monotonic() > until:
                self._client.close()
                raise clusters.without_workers(scheduler)
            time.sleep(0.1)
        self.count = count
        self._at: dict[str, str] = {}
        self._placing = Placing(held)
        self._begun: set[int] = set()

    @property
    def placement(self) -> Placement:
        """How many parts were placed so far; an attempt counts as one."""
        return self._placing.placement

    def perform(self, job: Job, parts: list[Part]) -> "Iterator[tuple[Part, Left | str]]":
        """Has Dask place the parts, those at first that `cheetah.placing` places near their bytes. A part whose worker is lost is
        begun anew by any."""
        import distributed  # type: ignore[import-untyped,unused-ignore]

        as_completed: Any = distributed.as_completed
        parts_of = {f"cheetah-run-{job.run}-{part.number}-{secrets.token_hex(4)}": part for part in parts}
        placed_at = self._placed(parts)
        futures = [
            self._client.submit(_at_dask, job, part, key=key, pure=False, retries=0, **placed_at[part.number])
            for key, part in parts_of.items()
        ]
        for future in as_completed(futures, loop=self._client.loop):
            part = parts_of[future.key]
            try:
                address, left = future.result()
            except Exception as error:
                yield part, f"its worker was lost, or dropped it ({type(error).__name__})"
                continue
            self._at[left.archive] = address
            yield part, left

    def _placed(self, parts: list[Part]) -> dict[int, dict[str, Any]]:
        """Returns for each part what Dask is told about its place: a preference, which makes no part wait. No worker gets more than
        its share."""
        threads: dict[str, int] = self._client.nthreads()
        self._placing.workers_are(threads)
        share = -(-len(parts) // max(1, sum(threads.values())))
        told: dict[int, dict[str, Any]] = {}
        taken = []
        for part in parts:
            ranges = [(part.begin, part.end - part.begin)] if part.number not in self._begun else []
            self._begun.add(part.number)
            workers = self._placing.take(ranges, share)
            taken.append(workers)
            told[part.number] = {"workers": list(workers), "allow_other_workers": True} if workers else {}
        # All of them are given out at once: the next call counts anew.
        for workers in taken:
            self._placing.give_back(workers)
        return told

    def fetch(self, left: Left) -> Iterator[bytes]:
        """Fetches the archive from the worker that has it."""

        def piece(offset: int) -> bytes:
            return bytes(self._there(left, at_worker.read, left.archive, offset, PIECE_BYTES))

        yield from _pieces(left, piece)
        self._there(left, at_worker.forget, left.archive)

    def end(self, job: Job) -> None:
        """Has all workers unmount, and disconnects."""
        with contextlib.suppress(Exception):
            self._client.run(at_worker.end, job.run, on_error="ignore")
        self._client.close()

    def _there(self, left: Left, function: Callable[..., Any], *arguments: object) -> Any:
        """Runs a function at the worker of a part. Raises ConnectionError if it is gone."""
        try:
            return self._client.run(function, *arguments, workers=[self._at[left.archive]])[self._at[left.archive]]
        except Exception as error:
            raise ConnectionError(f"its results cannot be fetched from {left.host}: {error}") from error


def _at_dask(job: Job, part: Part) -> tuple[str, Left]:
    """Runs at a worker of Dask; returns its address as well."""
    from distributed import get_worker  # type: ignore[import-untyped,unused-ignore]

    return get_worker().address, at_worker.perform(job, part)


def _pieces(left: Left, piece: Callable[[int], bytes]) -> Iterator[bytes]:
    at = 0
    while at < left.archive_bytes:
        found = piece(at)
        if not found:
            raise ConnectionError(f"its results at {left.host} are shorter than they were")
        at += len(found)
        yield found
