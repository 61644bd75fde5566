"""The end of a run: its tables, its summary and its report."""

from typing import Any

from cheetah.triage.hub import custody, plan
from cheetah.triage.hub.clock import now
from cheetah.triage.hub.folder import PARTS
from cheetah.triage.hub.opened import Opened
from cheetah.triage.hub.stages import Stages
from cheetah.triage.outputs import OUTPUTS
from cheetah.triage.report import coverage, summary
from cheetah.triage.tables import merge, notable, timeline
from cheetah.triage.tables.store import ArrowRows
from cheetah.triage.task import CompletedTask, Problem, Task
from cheetah.triage.versions import versions

DONE, FAILED, EVIDENCE = 0, 1, 3


def close(opened: Opened, stages: Stages) -> tuple[int, dict[str, Any]]:
    """Writes the tables, the summary and the report; returns the exit code and the summary."""
    opened.doubts()
    opened.top_findings.drop_previews()
    opened.progress.begin_rows("merging")
    complete = stages.assemble() and stages.ended
    done = opened.ledger.all()
    _write_tables(opened, stages, done, complete)
    opened.progress.of("report", always=True)
    facts = _facts(opened, stages, done, complete)
    written = summary.write(opened.out, facts)
    _report(opened)
    ended_by = stages.stopped.sentence if stages.stopped else None
    opened.log.end(complete, written["verdict"], OUTPUTS, ended_by)
    opened.progress.of("done", always=True)
    if not stages.ended and not stages.stopped:
        return FAILED, written
    unread = not complete or any(one.unreadable or one.failed for one in done)
    unread |= any(problem.stage == "listing" or problem.gap for problem in facts.problems)
    return EVIDENCE if unread else DONE, written


def _write_tables(opened: Opened, stages: Stages, done: list[CompletedTask], complete: bool) -> None:
    out, wrote = opened.out, opened.progress.processed
    listing = ArrowRows(opened.parts.path("listing"))
    why = plan.NOT_REACHED if not stages.ended else plan.NOT_RANKED if opened.settings.quick else plan.GIVEN_UP
    aside = merge.buckets(opened.parts, opened.ledger.done["content"].values(), out / PARTS / "aside")
    more = merge.files(listing, aside, out / "files.parquet", why, complete, wrote)
    aside.remove()
    opened.progress.findings = merge.findings(opened.parts, done, more, out / "findings.parquet", complete)
    timeline.write(out / "files.parquet", out / "timeline.parquet", wrote)
    notable.write(out)


def _facts(opened: Opened, stages: Stages, done: list[CompletedTask], complete: bool) -> summary.RunFacts:
    # Tasks may report the same problem.
    problems = list({problem for one in done for problem in one.problems})
    problems += stages.first_stage.problems
    problems.sort(key=_problem_order)
    if stages.stopped:
        problems.insert(0, stages.stopped)
    settings, shared, found = opened.settings, opened.shared, opened.ledger.done
    beside = {"beside": list(settings.beside)} if settings.beside else {}
    ranges = stages.ranges()
    return summary.RunFacts(
        source={
            "name": opened.identity["name"],
            "size_bytes": opened.identity["size"],
            "uri": settings.source,
            **beside,
        },
        volumes=stages.volumes,
        started=opened.started,
        ended=now(),
        complete=complete,
        settings=settings.published(),
        tool_versions=versions(),
        command=opened.command,
        problems=problems,
        stages=_stages(opened, stages, ranges),
        bytes_read=sum(one.bytes_read for one in found["content"].values()),
        link=shared.stats(),
        lost=shared.lost,
        doubts=opened.doubts(),
        case=dict(settings.case),
        custody={"log": custody.LOG, "key": opened.log.key},
        connections=shared.connections,
        unlocked=shared.unlocked,
        at_nodes=stages.first_stage.facts,
        logical=shared.logical if any(shared.logical.values()) else None,
        placement=opened.workers.placement,
        unallocated=(
            coverage.unallocated(ranges, found["unallocated"], problems) if ranges else summary.UnallocatedCoverage()
        ),
    )


def _stages(opened: Opened, stages: Stages, ranges: list[Task]) -> dict[str, tuple[int, int]]:
    """Returns the finished and the total number for each stage reached: tasks, or files for content."""
    done = opened.ledger.done
    found = {
        "volumes": coverage.tasks([opened.volumes_task()], done["volumes"]),
        "listing": coverage.listing(opened.ledger.first_tasks, done["listing"]),
        "content": coverage.files(done["content"].values(), opened.progress.totals.get("content", 0)),
        "unallocated": coverage.tasks(ranges, done["unallocated"]),
    }
    return {stage: share for stage, share in found.items() if stage in stages.reached}


def _report(opened: Opened) -> None:
    # Its template engine is slow to import.
    from cheetah.triage import report

    report.write(opened.out)


def _problem_order(problem: Problem) -> tuple[str, int, str, int, str]:
    return problem.stage, problem.volume, problem.path or "", problem.offset or 0, problem.sentence
