"""Triage: what is on a source, what to look at first, and why.

How the parts fit
-----------------

One process, the *hub*, opens the source (`run`), shares it with its workers over a socket, hands out tasks and writes
what comes back. Workers are processes of their own (`pool`) or machines (`cluster`): The Sleuth Kit holds a lock
around each read, so threads on one handle do not overlap.

    settings    what was asked for; what of it the result depends on
    task        Task, Result and what they are made of: the vocabulary between hub and workers
    worker      what a worker process keeps: the source, file system handles, compiled rules; `perform(task, worker)`
    volumes     partitions and the file systems in them                                    -> volumes
    walk        directories, exactly as `fls -r -m /` lists them, a subtree at a time      -> listing rows
    bodyfile    a listing row as the line that `fls -m` prints
    content     hashes, types and hits of files, a batch at a time                         -> content rows, findings
    unallocated hits in what belongs to no file, a range at a time                         -> findings
    score       what to read first, and what to look at first
    pool, cluster   the same small interface twice: submit tasks, get results, outlive workers
    journal     which tasks are done, durable, so that an interrupted run goes on
    store       the schemas, and the parts of the result until they are merged
    run         the stages in their order
    summary, report, progress    what people see

A task is named by what it is to do, so its result can be kept and found again. A task may hand back more tasks. The
result does not depend on the number of workers, nor on the order in which they are done: every row carries a key,
and rows are put into the order of their keys before anybody sees them.

Nothing here writes to a source. What could not be read is a problem in the summary and a state of its row, never a
gap that nobody mentions.
"""
