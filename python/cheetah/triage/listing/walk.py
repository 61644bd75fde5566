"""The tasks that list directories, so that workers can share the work.

The Sleuth Kit's own walk is one long loop in one thread. Here a task lists subtrees up to a number of entries, and
defers the remaining directories to further tasks; each records where the deferred rows belong, so the listing comes
out in the order of `fls` regardless of which worker did which part.

A listing task's `what` is one or more starts, each `[inode, path, [inodes of the directories above], orphan]`. Paths
are bytes of the file system, kept in strings with surrogateescape. The directories below $OrphanFiles stay in the
task that lists it: a worker must find all orphans of a file system before it can open one of their directories.
"""

from cheetah.triage.filesystem import opening
from cheetah.triage.listing.lister import Lister
from cheetah.triage.listing.subtree import Deferred, SubtreeStart
from cheetah.triage.reading.reader import reason
from cheetah.triage.reading.worker import Worker
from cheetah.triage.search import name_search
from cheetah.triage.task import Problem, Result, RowPlacement, Task

ENTRIES_FIRST = 200
"""Entries that the first task of a volume lists before it defers the rest, so that all workers are soon busy."""
ENTRIES_MAX = 2000
"""Entries that any other task lists."""
TASKS_HANDED_ON = 8
"""The maximum number of tasks into which a task divides its deferred directories."""
DIRECTORIES_SPARE, INODES_COUNTED = 10_000, 4_000_000
"""How many more directories than inodes a file system may have (deleted ones), and the limit beyond which inodes are
not counted."""


def first_task(volume: int, root_inode: int, once: bool = False) -> Task:
    """Returns the first task of a volume's listing. One that lists each directory `once` works alone."""
    return Task("listing", volume, (SubtreeStart(root_inode, b"", (), once=once).plain(),))


def is_once(task: Task) -> bool:
    """Returns whether a task lists each directory once."""
    return SubtreeStart.of(task.what[0]).once


def is_tangled(directories: int, inodes: int) -> bool:
    """Returns whether there are too many directories: some must have several names, so that a few make endlessly many
    paths."""
    return directories > min(inodes, INODES_COUNTED) + DIRECTORIES_SPARE


def is_of_orphans(task: Task) -> bool:
    """Returns whether a task lists orphans, which takes longest and is therefore started first."""
    return bool(task.what[0][3])


def listing(worker: Worker, task: Task) -> Result:
    """Lists the subtrees of a task."""
    try:
        file_system = opening.file_system(worker, task.volume)
    except OSError as error:
        sentence = f"the file system could not be opened: {reason([], error)}"
        return Result(problems=[Problem("listing", sentence, task.volume)], failed=True)
    result = Result()
    starts = [SubtreeStart.of(plain) for plain in task.what]
    first = starts[0].inode == int(file_system.info.root_inum)
    lister = Lister(worker.image(), file_system, task.volume, ENTRIES_FIRST if first else ENTRIES_MAX)
    lister.correct_times(worker.volumes[task.volume].start)
    if worker.settings.scheduler is not None:
        lister.note_places(worker.volumes[task.volume])
    lister.once = {starts[0].inode} if starts[0].once else None
    searching = name_search.engine(worker)
    lister.names = name_search.NameSearch(searching, task.volume) if searching is not None else None
    for start in starts:
        result.starts.append(lister.count)
        lister.start(start)
    result.rows = lister.table()
    result.directories = lister.directories
    result.problems.extend(lister.problems)
    if lister.names is not None:
        result.findings = lister.names.findings()
        if lister.names.trouble:
            result.problems.append(Problem("listing", lister.names.trouble, task.volume))
    _hand_on(task.volume, lister.left, result)
    return result


def _hand_on(volume: int, left: list[Deferred], result: Result) -> None:
    """Divides deferred directories into a few tasks, neighbours together; orphans, which take long, alone."""
    share = max(1, -(-len(left) // TASKS_HANDED_ON))
    groups: list[list[Deferred]] = [[]]
    for one in left:
        if groups[-1] and (one.start.orphan or groups[-1][-1].start.orphan or len(groups[-1]) == share):
            groups.append([])
        groups[-1].append(one)
    for number, group in enumerate(groups if left else []):
        result.tasks.append(Task("listing", volume, tuple(one.start.plain() for one in group)))
        result.places.extend(RowPlacement(one.within, one.row, number, start) for start, one in enumerate(group))
