"""Performs tasks: chooses the stage that a task belongs to.

A stage is imported when its first task comes: the fork server has imported all of them.
"""

from cheetah.triage.reading.worker import Worker
from cheetah.triage.task import Problem, Result, Task


def perform(task: Task, worker: Worker) -> Result:
    """Performs a task. Unreadable data is reported in the result; an exception is a fault of this program, or of the
    worker's machine."""
    worker.begin()
    match task.stage:
        case "volumes":
            from cheetah.triage.filesystem import volumes

            result = volumes.find(worker, task)
        case "preview":
            from cheetah.triage.listing import mft_preview

            result = mft_preview.look(worker, task)
        case "listing":
            from cheetah.triage.listing import walk

            result = walk.listing(worker, task)
        case "content":
            from cheetah.triage.content import analysis

            result = analysis.analyse(worker, task.entries())
        case "unallocated":
            from cheetah.triage.content import unallocated

            start, length = task.what
            result = unallocated.scan(worker, task.volume, start, length)
    if task.stage in ("volumes", "listing"):
        for offset, length, why in worker.take_unreadable():
            result.problems.append(Problem(task.stage, f"could not be read: {why}", task.volume, None, offset, length))
    result.gone = worker.has_lost_its_source()
    return result
