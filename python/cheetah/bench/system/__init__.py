"""What differs by system in measurements, behind the same names: Linux and Windows have a folder each.

| module | what it does |
|---|---|
| `behind` | finds the files that a file system is on |
| `counted` | reads the machine's counters |
| `machine` | describes the machine |
| `mounts` | finds the file system that holds a path |
| `owner` | finds out whose folders and processes are |
| `pages` | drops files from memory, and has them stored |
| `pinned` | keeps programs in memory |
| `process` | names the signals that end a run, and locks files |
| `programs` | names the programs of an examiner, or what does their work |
| `tool` | runs a program, and measures it |
"""

import sys

if sys.platform == "win32":
    from cheetah.bench.system.windows import (
        behind,
        counted,
        machine,
        mounts,
        owner,
        pages,
        pinned,
        process,
        programs,
        tool,
    )
else:
    from cheetah.bench.system.linux import (
        behind,
        counted,
        machine,
        mounts,
        owner,
        pages,
        pinned,
        process,
        programs,
        tool,
    )

__all__ = ["behind", "counted", "machine", "mounts", "owner", "pages", "pinned", "process", "programs", "tool"]
