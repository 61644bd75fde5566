"""The tasks that list directories, so that workers can share in it.

The Sleuth Kit's own walk is one long loop in one thread. Here a task lists some subtrees up to a number of entries, and
hands the directories that are left to further tasks; each remembers where the rows of what it left out belong, so the
listing is put together in the order of `fls` whoever did which part.

A listing task's `what` is one or more starts, each `[inode, path, [inodes of the directories above], orphan]`. Paths
are bytes of the file system, kept in strings with surrogateescape. What is below $OrphanFiles stays in the task that
lists it: a worker has to find the orphans of a file system before it can open a directory of theirs.
"""

from cheetah.triage.listing import name_search
from cheetah.triage.listing.lister import Lister
from cheetah.triage.listing.subtree import Left, Start
from cheetah.triage.reading.reader import reason
from cheetah.triage.task import Place, Problem, Result, Task
from cheetah.triage.workers.worker import Worker

ENTRIES_FIRST = 200
"""Entries that the first task of a volume lists before it hands on the rest, so that all workers are busy soon."""
ENTRIES_MAX = 2000
"""Entries that any other task lists."""
TASKS_HANDED_ON = 8
"""Into how many tasks, at most, a task parts the directories it leaves over."""
DIRECTORIES_SPARE, INODES_COUNTED = 10_000, 4_000_000
"""A file system may have so many directories more than inodes (deleted ones), and no more than so many are waited
for."""


def first_task(volume: int, root_inode: int, once: bool = False) -> Task:
    """The task a volume's listing begins with. One that lists each directory `once` does so alone."""
    return Task("listing", volume, (Start(root_inode, b"", (), once=once).plain(),))


def is_once(task: Task) -> bool:
    """Whether a task lists each directory once."""
    return Start.of(task.what[0]).once


def is_tangled(directories: int, inodes: int) -> bool:
    """Whether so many directories cannot be: some have more than one name, so that a few make endlessly many paths."""
    return directories > min(inodes, INODES_COUNTED) + DIRECTORIES_SPARE


def is_of_orphans(task: Task) -> bool:
    """Whether a task lists orphans, which takes longer than others and so is to be begun first."""
    return bool(task.what[0][3])


def listing(worker: Worker, task: Task) -> Result:
    """Lists the subtrees of a task."""
    try:
        file_system = worker.file_system(task.volume)
    except OSError as error:
        sentence = f"the file system could not be opened: {reason([], error)}"
        return Result(problems=[Problem("listing", sentence, task.volume)], failed=True)
    result = Result()
    starts = [Start.of(plain) for plain in task.what]
    first = starts[0].inode == int(file_system.info.root_inum)
    lister = Lister(worker.image(), file_system, task.volume, ENTRIES_FIRST if first else ENTRIES_MAX)
    lister.once = {starts[0].inode} if starts[0].once else None
    searching = name_search.engine(worker)
    lister.names = name_search.Names(searching, task.volume) if searching is not None else None
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


def _hand_on(volume: int, left: list[Left], result: Result) -> None:
    """Parts what is left over into a few tasks, neighbours together; orphans, which take long, alone."""
    share = max(1, -(-len(left) // TASKS_HANDED_ON))
    groups: list[list[Left]] = [[]]
    for one in left:
        if groups[-1] and (one.start.orphan or groups[-1][-1].start.orphan or len(groups[-1]) == share):
            groups.append([])
        groups[-1].append(one)
    for number, group in enumerate(groups if left else []):
        result.tasks.append(Task("listing", volume, tuple(one.start.plain() for one in group)))
        result.places.extend(Place(one.within, one.row, number, start) for start, one in enumerate(group))
