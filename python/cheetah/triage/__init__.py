"""Triage: what is on a source, what to look at first, and why.

One process, the *hub*, opens the source, shares it with its workers over a socket, hands out tasks, and writes what
comes back. Workers are processes (`workers.pool`) or machines (`workers.cluster`): The Sleuth Kit holds a lock around
each read, so threads on one handle do not overlap.

    cli, settings    the command line; settings, and which of them the result depends on
    task             Task, Result and their parts: the vocabulary between hub and workers
    versions         versions of this package and of the libraries a result depends on

    hub/             runs the stages in order
        run              the stages: volumes, listing, ranking, content, unallocated, report
        shared_source    the source, opened once and shared
        folder           the directory of the result, and whether a run may resume in it
        plan             which files are read, in which order and batches
        custody          the signed log with the hash of each file of the result
        journal, ledger  tasks that are done, durable, so that an interrupted run resumes
        preview          a few files and names read early, for the progress display alone
        progress, stage_progress, top_findings    what the user sees during a run
    workers/         performs tasks
        worker           the state of a worker process: the source, file-system handles, compiled rules
        perform          chooses the stage of a task
        pool, cluster    one interface twice: submit tasks, get results, survive the loss of workers
        preload          the process that the pool forks workers from
    reading/         image (the source for The Sleuth Kit), reader (one file's stream), salvage (damaged ranges)
    filesystem/      volumes, free blocks (allocation), NTFS records (mft_record, mft_file_name)
        exfat, times, ext_inodes, distrust    what The Sleuth Kit reads wrongly: corrected, or marked as not trusted
    listing/         directories, a subtree at a time (walk, lister), as lines of `fls -m` (bodyfile), in order (assemble)
        name_search      keywords in names
        mft_preview      keywords in the names of an NTFS volume before it can be listed
    content/         analysis of a batch of files: hashes, types, hits; unallocated space, a range at a time
        types, signatures, extensions   a file's type, and whether its name agrees
        hashset, hashtext, list_text    hash lists; the encodings and line ends of lists
        scan                            keywords and YARA rules
    ranking/         score, and folder_kinds, which it depends on
    tables/          store (schemas and parts), merge (files.parquet, findings.parquet), timeline
    report/          summary.json and report.html

A task is named after its work, so its result can be stored and found again. A task may return more tasks. The result
does not depend on the number of workers, nor on the order in which tasks are done: every row has a key, and rows are
put into the order of their keys before anything is written.

Nothing here writes to a source. A range that could not be read is a problem in the summary and a state of its row.
"""
