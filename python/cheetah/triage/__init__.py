"""Triage: what is on a source, what to look at first, and why.

How the parts fit
-----------------

One process, the *hub*, opens the source (`run`), shares it with its workers over a socket, hands out tasks and writes
what comes back. Workers are processes of their own (`pool`) or machines (`cluster`): The Sleuth Kit holds a lock
around each read, so threads on one handle do not overlap.

    settings    what was asked for; what of it the result depends on
    task        Task, Result and what they are made of: the vocabulary between hub and workers
    hub         the source as the one process that holds the link has it
    folder      the folder of the result: whose it is, and whether a run may go on in it
    worker      what a worker process keeps: the source, file system handles, compiled rules; `perform(task, worker)`
    image       the source as The Sleuth Kit reads it
    volumes     partitions and the file systems in them                                    -> volumes
    walk        directories, exactly as `fls -r -m /` lists them, a subtree at a time      -> listing rows
      names       keywords in the names of the rows                                        -> findings
      glimpse     names in an NTFS volume before it can be listed
      record      NTFS's records, taken apart by hand
    bodyfile, file_name     a listing row as the line that `fls -m` prints
    assemble    the rows of all listing tasks in the order of `fls`
    content     hashes, types and hits of files, a batch at a time                         -> content rows, findings
      reader      the stream of one file, once for all of its names
      pieces      reading what may be damaged
      types, signatures, extensions   what a file is, and whether its name says so
      hashset, hashtext   lists of hashes
      scan        keywords and YARA rules
    unallocated hits in what belongs to no file, a range at a time                         -> findings
      allocation  which blocks of a file system are free
    score, places   what to read first, and what to look at first
    timeline    every time of every file, in order
    stem        the process that workers of this machine are forked from
    pool, cluster   the same small interface twice: submit tasks, get results, outlive workers
    journal     which tasks are done, durable, so that an interrupted run goes on
    store       the schemas, and the parts of the result until they are merged
    plan        which files are read, in which batches
    merge       files.parquet and findings.parquet from all of that
    run         the stages in their order
    latest, early   what was found so far, for whoever watches; and what is seen for that alone
    summary, report, progress    what people see

What the hub calls of the stages that look at content:

    content.analyse(worker, entries: list[Entry]) -> Result             rows by `store.CONTENT`
    unallocated.scan(worker, volume: int, start: int, length: int) -> Result    bytes in the image; volume -1: outside
    all score.rank(rows: pa.RecordBatch) -> pa.Array        int32 for rows by `store.LISTING`: what to read first
    score.final(rows: pa.RecordBatch) -> pa.Array       int32 for rows by `store.FILES`, whose score is still 0
    score.findings(rows: pa.RecordBatch) -> list[Finding]    of rows by `store.FILES`, scored: what only metadata
    tells timeline.write(files: pathlib.Path, out: pathlib.Path) -> None      from files.parquet to timeline.parquet
    summary.write(out, facts), report.write(out)        from the tables

A task is named by what it is to do, so its result can be kept and found again. A task may hand back more tasks. The
result does not depend on the number of workers, nor on the order in which they are done: every row carries a key,
and rows are put into the order of their keys before anybody sees them.

Nothing here writes to a source. What could not be read is a problem in the summary and a state of its row, never a
gap that nobody mentions.
"""
