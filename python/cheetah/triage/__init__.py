"""Triage: what is on a source, what to look at first, and why.

One process, the *hub*, opens the source, shares it with its workers over a socket, hands out tasks, and writes what
comes back. Workers are processes (`workers.pool`) or machines (`workers.cluster`): The Sleuth Kit holds a lock around
each read, so threads on one handle do not overlap.

A package imports only from those that stand below it here.

    cli              the command line

    hub/             runs the stages in order
        run              opens the source and the records of the run (opened); closing writes its tables and its report
        stages           volumes, listing, ranking, content, unallocated; source_watch notices that the source is gone
        first_stage      before content, with `--at-nodes`: atoms of YARA rules are searched where the bytes lie
        folder           the directory of the result, and whether a run may resume in it
        plan             which files are read, in which order and batches
        custody          the signed log with the hash of each file of the result
        journal, ledger  tasks that are done, durable, so that an interrupted run resumes
        preview          a few files and names read early, for the progress display alone
        progress, stage_progress, top_findings    what the user sees during a run
    workers/         performs tasks
        perform          chooses the stage of a task
        pool, cluster    one interface twice: submit tasks, get results, survive the loss of workers
        preload          the process that the pool forks workers from
    content/         analysis of a batch of files: hashes, types, hits; unallocated space, a range at a time
        stored           where in the image the content of a file lies, if all of it lies there as it is
    listing/         directories, a subtree at a time (walk, lister), as lines of `fls -m` (bodyfile), in order (assemble)
        mft_preview      keywords in the names of an NTFS volume before it can be listed
    report/          summary.json and report.html
    tables/          store (schemas and parts), content_rows, merge (files.parquet, findings.parquet), timeline
        notable          the files with findings as a hash set, for other tools
    search/          what to look for
        scan, name_search               keywords and YARA rules; keywords in names
        atoms, atom_search, atom_map    literal bytes that rules need; the search for them; where in a source they are
        hashset, hashtext, list_text    hash lists; the encodings and line ends of lists
        databases, encase, fault        the NSRL's databases, sets of EnCase; why a list cannot be used
    filesystem/      volumes, opening, free blocks (allocation), NTFS records (mft_record, mft_file_name), logs, places of files
        exfat, times, ext_inodes, distrust    what The Sleuth Kit reads wrongly: corrected, or marked as not trusted
    reading/         the source
        shared_source    opened once by the hub, and shared
        worker           the state of a worker: the source, and what the stages keep, such as compiled rules
        image            the source for The Sleuth Kit
        reader, salvage  one file's stream; damaged ranges
    ranking/         score, and folder_kinds, which it depends on
    kinds/           types, signatures and extensions of files
    settings         the settings, and which of them the result depends on
    task             Task, Result and their parts: the vocabulary between hub and workers
    versions         versions of this package and of the libraries a result depends on

A task is named after its work, so its result can be stored and found again. A task may return more tasks. The result
does not depend on the number of workers, nor on the order in which tasks are done: every row has a key, and rows are
put into the order of their keys before anything is written.

Nothing here writes to a source. A range that could not be read is a problem in the summary and a state of its row.
"""
