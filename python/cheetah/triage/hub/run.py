"""The stages of a triage in order: volumes, listing, ranking, content, unallocated, report."""

import contextlib
import dataclasses
import datetime
import itertools
import pathlib
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from cheetah import options, path_text
from cheetah.error import Error
from cheetah.triage.filesystem import volumes
from cheetah.triage.hub import custody, plan, space
from cheetah.triage.hub.folder import JOURNAL, OUTPUTS, PARTS, Folder
from cheetah.triage.hub.journal import NOTHING, Journal, Vouched
from cheetah.triage.hub.ledger import Ledger
from cheetah.triage.hub.preview import Previews
from cheetah.triage.hub.stage_progress import StageProgress, Tell
from cheetah.triage.hub.top_findings import TopFindings
from cheetah.triage.listing import assemble
from cheetah.triage.ranking import score
from cheetah.triage.reading import shared_source
from cheetah.triage.report import coverage, summary
from cheetah.triage.settings import Settings
from cheetah.triage.tables import merge, timeline
from cheetah.triage.tables.store import ArrowRows, Parts
from cheetah.triage.task import CompletedTask, Problem, Result, Task, Volume
from cheetah.triage.versions import deciding, versions
from cheetah.triage.workers.pool import Pool

FRUITLESS_MAX = 4
"""After this many consecutive tasks per worker without a result, the source is probed."""
DONE, FAILED, MISUSED, EVIDENCE = 0, 1, 2, 3


class Workers(Protocol):
    """A performer of tasks: `pool.Pool` or `cluster.Cluster`."""

    volumes: tuple[Volume, ...]
    lost: int

    @property
    def workers(self) -> int:
        """The number of tasks performed at once."""

    def submit(self, task: Task, first: bool = False) -> None:
        """Schedules a task."""

    def results(self, more: Iterable[Task] = ()) -> Iterator[tuple[Task, Result] | None]:
        """Yields results as they arrive."""

    def close(self) -> None:
        """Ends the workers."""


class Stopped(Exception):
    """Continuing makes no sense: one sentence."""


class Run:
    """A run. `tell` receives progress events; `command` is the command line for the report; `opened` waits for a
    source that is already being opened."""

    def __init__(
        self,
        settings: Settings,
        tell: Tell,
        command: Iterable[str] = (),
        opened: Callable[[], shared_source.SharedSource] | None = None,
    ):
        self._settings = settings
        self._tell = tell
        self._command = tuple(command)
        self._opened = opened
        self._started = _now()
        self._began_s = time.monotonic()
        self._volumes: tuple[Volume, ...] = ()
        self._size = 0
        self._reached: list[str] = []
        self._fruitless = 0
        self._doubtful = False
        """Whether something could not be read in this stage."""
        self._last_problem = "a task was given up"
        self._ended = False
        self._complete = False
        self._stopped: Problem | None = None
        """Why the result is not complete, unless the user interrupted the run."""
        self._top_findings = TopFindings()
        self._custody: custody.Custody | None = None
        self._looking: futures.Future[Sequence[str]]
        """A look for what is in doubt about the source."""
        self._shared: shared_source.SharedSource
        self._workers: Workers
        self._previews: Previews
        self._journal: Journal
        self._ledger: Ledger
        self._parts: Parts
        self._stage_progress: StageProgress

    def go(self) -> tuple[int, dict[str, Any]]:
        """Runs all stages; returns the exit code and the summary. Raises OSError if the source cannot be opened,
        Misuse if the command makes no sense."""
        folder = Folder(self._settings.out, self._settings.fresh)
        with contextlib.ExitStack() as stack:
            stack.callback(folder.close)
            opened = self._opened or stack.enter_context(shared_source.opening(self._settings))
            return self._in(folder, opened())

    def _in(self, folder: Folder, shared: shared_source.SharedSource) -> tuple[int, dict[str, Any]]:
        try:
            return self._examined(folder, shared)
        except OSError as error:
            # Why there is no result, as far as that can be written.
            with contextlib.suppress(OSError):
                if self._custody is not None:
                    self._custody.stop(options.sentence(error))
            raise
        finally:
            if self._custody is not None:
                self._custody.close()

    @property
    def _log(self) -> custody.Custody:
        assert self._custody is not None, "it is opened before anything is examined"
        return self._custody

    def _examined(self, folder: Folder, shared: shared_source.SharedSource) -> tuple[int, dict[str, Any]]:
        with contextlib.ExitStack() as stack:
            # Workers take a while to start; the source is identified meanwhile.
            self._workers = _start_workers(shared.uri, self._settings)
            stack.callback(self._workers.close)
            identity = shared_source.identity(shared.uri, shared.name)
            self._size = identity["size"]
            self._shared = shared
            again = folder.bind(identity, {**self._settings.binding(), "versions": deciding()})
            self._custody = custody.Custody(folder.path)
            # Of a folder that is not bound yet, nothing is taken over.
            binding = folder.binding()
            vouched = self._log.vouched(binding) if again else NOTHING
            self._record(identity, binding, again)
            self._parts = Parts(folder.path / PARTS)
            self._journal = self._resumed(folder.path / JOURNAL, vouched)
            stack.callback(self._journal.close)
            self._ledger = Ledger(self._journal, self._workers.submit, self._top_findings.forget)
            self._stage_progress = StageProgress(self._tell, self._ledger, self._top_findings, self._began_s)
            self._looking = stack.enter_context(futures.ThreadPoolExecutor(1)).submit(shared.doubts)
            self._previews = Previews(self._top_findings, self._workers.submit, self._ledger.is_listed)
            try:
                self._stages(folder.path)
                self._ended = True
            except KeyboardInterrupt:
                pass
            except Stopped as stop:
                self._stopped = Problem(self._reached[-1], str(stop))
        return self._finish(folder.path, identity, shared)

    def _resumed(self, path: pathlib.Path, vouched: Vouched) -> Journal:
        """Opens the journal, as far as the custody log vouches for it."""
        try:
            return Journal(path, self._parts, self._settings.max_file, vouched, self._log.vouch)
        except Error as error:
            self._log.changed(str(error))
            raise

    def _record(self, identity: dict[str, Any], binding: bytes, again: bool) -> None:
        """Records the start of the run."""
        source = {
            "kind": "triage",
            "location": self._settings.source,
            "name": identity["name"],
            "size_bytes": identity["size"],
        }
        command = path_text.to_text(shlex.join(self._command))
        how = {"command": command, custody.BOUND_TO: custody.bound(binding), **versions()}
        self._log.begin(source, dict(self._settings.case), how, again)

    def _stages(self, out: pathlib.Path) -> None:
        self._stage("volumes", [self._volumes_task()])
        (found,) = self._ledger.done["volumes"].values()
        if found.failed:
            raise Stopped(found.problems[0].sentence)
        self._volumes = self._workers.volumes = tuple(found.volumes)
        first_tasks = self._ledger.begin_listing(self._volumes)
        name_tasks = self._previews.name_tasks(
            self._volumes if self._settings.keywords and self._workers.workers > 1 else ()
        )
        self._stage("listing", itertools.chain(first_tasks, name_tasks))
        given_up = sum(one.failed for one in self._ledger.done["listing"].values())
        if given_up:
            sentence = f"the listing is not whole: {given_up} of its parts were given up, with everything in them"
            self._stopped = Problem("listing", sentence)
        self._top_findings.drop_previews()
        order = self._rank(out)
        self._stage_progress.totals["content"] = len(order)
        listing = ArrowRows(self._parts.path("listing"), plan.COLUMNS)
        self._stage("content", plan.content_tasks(listing, order, self._settings))
        if self._searches():
            ranges = list(plan.unallocated_tasks(self._volumes, self._size))
            self._stage_progress.totals["unallocated"] = sum(task.what[1] for task in ranges)
            self._stage("unallocated", ranges)

    def _doubts(self) -> tuple[str, ...]:
        """Waits for what is in doubt about the source, and says and records it once."""
        doubts = tuple(self._looking.result())
        if doubts and not self._stage_progress.doubts:
            self._stage_progress.doubts = doubts
            self._log.doubts(doubts)
        return doubts

    def _volumes_task(self) -> Task:
        return volumes.task(self._settings.sector_size or self._shared.sector_size)

    def _searches(self) -> bool:
        """Returns whether there are keywords or rules to look for in unallocated space."""
        settings = self._settings
        return settings.unallocated and not settings.quick and bool(settings.keywords or settings.yara)

    def _stage(self, stage: str, tasks: Iterable[Task]) -> None:
        """Runs all tasks of a stage, and those they return, except tasks already done."""
        self._reached.append(stage)
        self._doubtful = False
        self._stage_progress.of(stage, always=True)
        for item in self._workers.results(self._ledger.to_do(tasks)):
            if self._looking.done():
                self._doubts()
            nothing_yet = not self._top_findings.best()
            if item is not None:
                self._bring(*item)
            # The first finding is shown at once.
            self._stage_progress.of(stage, always=nothing_yet and bool(self._top_findings.best()))
        self._journal.sync()
        if self._doubtful:
            # No task may be left only because nothing could be read.
            self._must_answer()
        self._stage_progress.of(stage, always=True)

    def _bring(self, task: Task, result: Result) -> None:
        """Stores the result of a task."""
        if self._previews.takes(task, result):
            return
        done, counts = self._ledger.add(task, result)
        if counts:
            self._top_findings.add(result.findings)
        self._watch(task, result, done)
        if task.stage == "listing":
            self._previews.preview_files(result)

    def _watch(self, task: Task, result: Result, done: CompletedTask) -> None:
        """Stops the run if the source is gone. A source with a large unreadable part is not gone."""
        brought = done.row_count if task.stage == "listing" else result.bytes_read
        fruitless = result.gone or result.failed or (done.unreadable and not brought)
        self._fruitless = self._fruitless + 1 if fruitless else 0
        self._doubtful |= fruitless or done.unreadable
        if result.problems:
            self._last_problem = result.problems[-1].sentence
        if result.gone or self._fruitless > FRUITLESS_MAX * self._workers.workers:
            self._must_answer()

    def _must_answer(self) -> None:
        """Probes whether the source still answers."""
        self._fruitless = 0
        if not self._shared.answers():
            raise Stopped(f"the source no longer answers; the last problem: {self._last_problem}")

    def _rank(self, out: pathlib.Path) -> np.ndarray:
        """Assembles the listing, and returns the order in which files are read."""
        space.check_rows(out, self._ledger.rows("listing"))
        self._reached.append("ranking")
        self._stage_progress.begin_rows("ranking")
        self._assemble(out)
        order = plan.ReadingOrder(self._settings)
        activity = score.Activity.of(self._ranked())
        for rows in self._ranked():
            order.add(rows, score.rank(rows, activity))
        return order.rows()

    def _ranked(self) -> Iterator[pa.RecordBatch]:
        """Yields the listing, reporting progress."""
        for rows in ArrowRows(self._parts.path("listing")).batches():
            yield rows
            self._stage_progress.processed(len(rows))

    def _assemble(self, out: pathlib.Path) -> bool:
        """Writes the listing and the bodyfile, which gets its final name only if complete."""
        listing = assemble.Listing(self._parts, self._ledger.done["listing"], self._ledger.first_tasks)
        # Before ranking, unreadable parts may be missing because the source was gone.
        whole = listing.is_whole() and "ranking" in self._reached
        bodyfile, other = out / "bodyfile.txt", out / "bodyfile.unfinished.txt"
        if not whole:
            bodyfile, other = other, bodyfile
        listing.write(self._parts.path("listing"), bodyfile, self._stage_progress.processed)
        other.unlink(missing_ok=True)
        return whole

    def _finish(
        self, out: pathlib.Path, identity: dict[str, Any], shared: shared_source.SharedSource
    ) -> tuple[int, dict[str, Any]]:
        """Writes the tables, the summary and the report."""
        self._doubts()
        self._top_findings.drop_previews()
        self._stage_progress.begin_rows("merging")
        self._complete = self._assemble(out) and self._ended
        listing = ArrowRows(self._parts.path("listing"))
        why = plan.NOT_REACHED if not self._ended else plan.NOT_RANKED if self._settings.quick else plan.GIVEN_UP
        contents = self._ledger.done["content"].values()
        aside = merge.buckets(self._parts, contents, out / PARTS / "aside")
        more = merge.files(listing, aside, out / "files.parquet", why, self._complete, self._stage_progress.processed)
        aside.remove()
        done = self._ledger.all()
        self._stage_progress.findings = merge.findings(
            self._parts, done, more, out / "findings.parquet", self._complete
        )
        timeline.write(out / "files.parquet", out / "timeline.parquet", self._stage_progress.processed)
        self._stage_progress.of("report", always=True)
        facts = self._facts(identity, shared, done)
        written = summary.write(out, facts)
        _report(out)
        ended_by = self._stopped.sentence if self._stopped else None
        self._log.end(self._complete, written["verdict"], OUTPUTS, ended_by)
        self._stage_progress.of("done", always=True)
        if not self._ended and not self._stopped:
            return FAILED, written
        unread = not self._complete or any(one.unreadable or one.failed for one in done)
        unread |= any(problem.stage == "listing" or problem.gap for problem in facts.problems)
        return EVIDENCE if unread else DONE, written

    def _facts(
        self, identity: dict[str, Any], shared: shared_source.SharedSource, done: list[CompletedTask]
    ) -> summary.RunFacts:
        # Tasks may report the same problem.
        problems = list({problem for one in done for problem in one.problems})
        problems.sort(key=_problem_order)
        if self._stopped:
            problems.insert(0, self._stopped)
        ranges = list(plan.unallocated_tasks(self._volumes, self._size)) if self._searches() else []
        searched = self._ledger.done["unallocated"]
        settings = dataclasses.asdict(self._settings)
        for kind in ("known", "wanted", "keywords", "yara"):
            settings[kind] = [path_text.to_text(path) for path in settings[kind]]
        del (
            settings["out"],
            settings["source"],
            settings["fresh"],
            settings["json"],
            settings["workers"],
            settings["scheduler"],
            settings["case"],
        )
        if settings["sector_size"] is None:
            del settings["sector_size"]
        return summary.RunFacts(
            source={"name": identity["name"], "size_bytes": identity["size"], "uri": self._settings.source},
            volumes=self._volumes,
            started=self._started,
            ended=_now(),
            complete=self._complete,
            settings=settings,
            tool_versions=versions(),
            command=self._command,
            problems=problems,
            stages=self._progress(ranges),
            bytes_read=sum(one.bytes_read for one in self._ledger.done["content"].values()),
            link=shared.stats(),
            lost=shared.lost,
            doubts=self._doubts(),
            case=dict(self._settings.case),
            custody={"log": custody.LOG, "key": self._log.key},
            connections=shared.connections,
            unallocated=coverage.unallocated(ranges, searched, problems) if ranges else summary.UnallocatedCoverage(),
        )

    def _progress(self, ranges: list[Task]) -> dict[str, tuple[int, int]]:
        """Returns the finished and the total number for each stage reached: tasks, or files for content."""
        done = self._ledger.done
        stages = {
            "volumes": coverage.tasks([self._volumes_task()], done["volumes"]),
            "listing": coverage.listing(self._ledger.first_tasks, done["listing"]),
            "content": coverage.files(done["content"].values(), self._stage_progress.totals.get("content", 0)),
            "unallocated": coverage.tasks(ranges, done["unallocated"]),
        }
        return {stage: progress for stage, progress in stages.items() if stage in self._reached}


def _start_workers(uri: str, settings: Settings) -> Workers:
    if settings.scheduler is not None:
        from cheetah.triage.workers.cluster import Cluster

        return Cluster(settings.scheduler, uri, settings)
    return Pool(uri, settings, settings.workers)


def _report(out: pathlib.Path) -> None:
    from cheetah.triage import report

    report.write(out)


def _problem_order(problem: Problem) -> tuple[str, int, str, int, str]:
    return problem.stage, problem.volume, problem.path or "", problem.offset or 0, problem.sentence


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
