"""The share of each stage that is done, measured against the plan."""

from collections.abc import Iterable, Mapping

from cheetah.triage.report.summary import UnallocatedCoverage
from cheetah.triage.task import CompletedTask, Problem, Task

UNREADABLE = "unallocated space could not be read"
GIVEN_UP = "unallocated space was given up"
"""How the sentences begin that distinguish unreadable bytes from bytes that were not tried."""


def listing(first_tasks: Iterable[Task], done: Mapping[str, CompletedTask]) -> tuple[int, int]:
    """Returns the number of listing tasks done, and the number known."""
    left, good, known = list(first_tasks), 0, 0
    while left:
        found = done.get(left.pop().id)
        known += 1
        if found is not None:
            good += not found.failed
            left.extend(found.tasks)
    return good, known


def tasks(planned: Iterable[Task], done: Mapping[str, CompletedTask]) -> tuple[int, int]:
    """Returns the number of planned tasks done, and their total."""
    good = [_is_good(task, done) for task in planned]
    return sum(good), len(good)


def files(done: Iterable[CompletedTask], total: int) -> tuple[int, int]:
    """Returns the number of files analysed, and the number to be analysed."""
    return sum(one.row_count for one in done), total


def unallocated(
    planned: Iterable[Task], done: Mapping[str, CompletedTask], problems: Iterable[Problem]
) -> UnallocatedCoverage:
    """Returns the coverage of unallocated space. In a range that was not searched the free space is unknown: all of it
    counts as not searched."""
    searched = sum(one.bytes_read for one in done.values())
    unread = sum(task.what[1] for task in planned if not _is_good(task, done))
    lost = 0
    for problem in problems:
        if problem.stage == "unallocated":
            lost += (problem.length or 0) * problem.sentence.startswith(UNREADABLE)
            unread += (problem.length or 0) * problem.sentence.startswith(GIVEN_UP)
    return UnallocatedCoverage(True, searched + lost + unread, searched, lost)


def _is_good(task: Task, done: Mapping[str, CompletedTask]) -> bool:
    found = done.get(task.id)
    return found is not None and not found.failed
