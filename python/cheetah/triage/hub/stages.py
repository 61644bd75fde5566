"""The stages that examine a source, in order: volumes, listing, ranking, content, unallocated."""

import itertools
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from cheetah.triage.hub import plan, space
from cheetah.triage.hub.first_stage import FirstStage
from cheetah.triage.hub.opened import Opened
from cheetah.triage.hub.source_watch import SourceWatch, Stopped
from cheetah.triage.listing import assemble
from cheetah.triage.ranking import score
from cheetah.triage.tables.store import ArrowRows
from cheetah.triage.task import Problem, Result, Task, Volume


class Stages:
    """The stages of a run, and how far they came."""

    def __init__(self, opened: Opened):
        self._opened = opened
        self._watch = SourceWatch(opened.shared, opened.workers)
        self.volumes: tuple[Volume, ...] = ()
        self.reached: list[str] = []
        self.ended = False
        """Whether the last stage was done."""
        self.first_stage = FirstStage(opened.settings, opened.shared.uri)
        self.stopped: Problem | None = None
        """Why the result is not complete, unless the user interrupted the run."""

    def run(self) -> None:
        """Examines the source, until that is done, the user interrupts it, or it makes no sense to go on."""
        try:
            self._examine()
            self.ended = True
        except KeyboardInterrupt:
            pass
        except Stopped as stop:
            self.stopped = Problem(self.reached[-1], str(stop))

    def ranges(self) -> list[Task]:
        """Returns the tasks that search unallocated space."""
        if not self._opened.searches_unallocated:
            return []
        return list(plan.unallocated_tasks(self.volumes, self._opened.identity["size"]))

    def assemble(self) -> bool:
        """Writes the listing and the bodyfile, which gets its final name only if complete; returns whether it is."""
        opened, out = self._opened, self._opened.out
        listing = assemble.Listing(opened.parts, opened.ledger.done["listing"], opened.ledger.first_tasks)
        # Before ranking, unreadable parts may be missing because the source was gone.
        whole = listing.is_whole() and "ranking" in self.reached
        bodyfile, other = out / "bodyfile.txt", out / "bodyfile.unfinished.txt"
        if not whole:
            bodyfile, other = other, bodyfile
        listing.write(opened.parts.path("listing"), bodyfile, opened.progress.processed)
        other.unlink(missing_ok=True)
        return whole

    def _examine(self) -> None:
        opened = self._opened
        self.first_stage.begin()
        self._stage("volumes", [opened.volumes_task()])
        (found,) = opened.ledger.done["volumes"].values()
        if found.failed:
            raise Stopped(found.problems[0].sentence)
        self.volumes = opened.workers.volumes = tuple(found.volumes)
        self._list()
        order = self._rank()
        opened.progress.totals["content"] = len(order)
        listing = ArrowRows(opened.parts.path("listing"), plan.COLUMNS)
        self.first_stage.run(opened.progress.atoms)
        self._stage("content", plan.content_tasks(listing, order, opened.settings))
        if opened.searches_unallocated:
            ranges = self.ranges()
            opened.progress.totals["unallocated"] = sum(task.what[1] for task in ranges)
            self._stage("unallocated", ranges)

    def _list(self) -> None:
        opened = self._opened
        first_tasks = opened.ledger.begin_listing(self.volumes)
        previewed = self.volumes if opened.settings.keywords and opened.workers.workers > 1 else ()
        self._stage("listing", itertools.chain(first_tasks, opened.previews.name_tasks(previewed)))
        given_up = sum(one.failed for one in opened.ledger.done["listing"].values())
        if given_up:
            sentence = f"the listing is not whole: {given_up} of its parts were given up, with everything in them"
            self.stopped = Problem("listing", sentence)
        opened.top_findings.drop_previews()

    def _stage(self, stage: str, tasks: Iterable[Task]) -> None:
        """Runs all tasks of a stage, and those they return, except tasks already done."""
        opened = self._opened
        self.reached.append(stage)
        self._watch.begin()
        opened.progress.of(stage, always=True)
        for item in opened.workers.results(opened.ledger.to_do(tasks)):
            if opened.looking.done():
                opened.doubts()
            nothing_yet = not opened.top_findings.best()
            if item is not None:
                self._bring(*item)
            # The first finding is shown at once.
            opened.progress.of(stage, always=nothing_yet and bool(opened.top_findings.best()))
        opened.journal.sync()
        self._watch.end()
        opened.progress.of(stage, always=True)

    def _bring(self, task: Task, result: Result) -> None:
        """Stores the result of a task."""
        opened = self._opened
        if opened.previews.takes(task, result):
            return
        done, counts = opened.ledger.add(task, result)
        if counts:
            opened.top_findings.add(result.findings)
        self._watch.note(task, result, done)
        if task.stage == "listing":
            opened.previews.preview_files(result)

    def _rank(self) -> np.ndarray:
        """Assembles the listing, and returns the order in which files are read."""
        space.check_rows(self._opened.out, self._opened.ledger.rows("listing"))
        self.reached.append("ranking")
        self._opened.progress.begin_rows("ranking")
        self.assemble()
        order = plan.ReadingOrder(self._opened.settings)
        activity = score.Activity.of(self._ranked())
        for rows in self._ranked():
            order.add(rows, score.rank(rows, activity))
        return order.rows()

    def _ranked(self) -> Iterator[pa.RecordBatch]:
        """Yields the listing, reporting progress."""
        for rows in ArrowRows(self._opened.parts.path("listing")).batches():
            yield rows
            self._opened.progress.processed(len(rows))
