"""How much of each stage is done, of all that it takes: by what was planned, not by what was reached."""

from collections.abc import Iterable, Mapping

from cheetah.triage.hub.journal import Done
from cheetah.triage.report.summary import Unallocated
from cheetah.triage.task import Problem, Task

UNREADABLE = "unallocated space could not be read"
GIVEN_UP = "unallocated space was given up"
"""How the sentences begin that tell bytes which could not be read from bytes nobody tried to read."""


def listing(first_tasks: Iterable[Task], done: Mapping[str, Done]) -> tuple[int, int]:
    """How many tasks of a listing are done, of how many that are known."""
    left, good, known = list(first_tasks), 0, 0
    while left:
        found = done.get(left.pop().id)
        known += 1
        if found is not None:
            good += not found.failed
            left.extend(found.tasks)
    return good, known


def tasks(planned: Iterable[Task], done: Mapping[str, Done]) -> tuple[int, int]:
    """How many of some tasks are done, of how many."""
    good = [_is_good(task, done) for task in planned]
    return sum(good), len(good)


def files(done: Iterable[Done], total: int) -> tuple[int, int]:
    """How many files were looked into, of how many that were to be."""
    return sum(one.row_count for one in done), total


def unallocated(planned: Iterable[Task], done: Mapping[str, Done], problems: Iterable[Problem]) -> Unallocated:
    """What became of the space that belongs to no file. What of a range that was not searched is free is not known:
    all of it counts as not searched."""
    searched = sum(one.bytes_read for one in done.values())
    unread = sum(task.what[1] for task in planned if not _is_good(task, done))
    lost = 0
    for problem in problems:
        if problem.stage == "unallocated":
            lost += (problem.length or 0) * problem.sentence.startswith(UNREADABLE)
            unread += (problem.length or 0) * problem.sentence.startswith(GIVEN_UP)
    return Unallocated(True, searched + lost + unread, searched, lost)


def _is_good(task: Task, done: Mapping[str, Done]) -> bool:
    found = done.get(task.id)
    return found is not None and not found.failed
