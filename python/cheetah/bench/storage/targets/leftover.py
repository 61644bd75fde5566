"""What a run that was killed left behind: found by its marker, and cleared away once nobody uses it."""

import dataclasses
import json
import os
import stat
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cheetah.bench.failure import BenchError
from cheetah.bench.process import run
from cheetah.bench.storage.targets import mounts, work

MARKER_BYTES_MAX = 64 << 10
PATIENCE_S = 40.0


@dataclasses.dataclass(frozen=True)
class Leftover:
    """A directory with our marker in it."""

    directory: Path
    out: str
    """Where that run keeps its results."""
    process: int | None
    """The process of that run, if it lives."""
    elsewhere: str
    """The machine it was made on, if that is another one; nobody here knows what lives there."""


def found(parent: Path) -> list[Leftover]:
    """All of them directly within a directory, of this user; links and what has no marker of ours are not ours."""
    try:
        names = sorted(path for path in parent.iterdir() if path.name.startswith(work.PREFIX))
    except OSError:
        return []
    return [one for one in map(_looked_at, names) if one is not None]


def _looked_at(directory: Path) -> Leftover | None:
    marker = directory / work.MARKER
    try:
        status, told = os.lstat(directory), os.lstat(marker)
        ours = stat.S_ISDIR(status.st_mode) and stat.S_ISREG(told.st_mode)
        if not ours or status.st_uid != os.geteuid() or told.st_size > MARKER_BYTES_MAX:
            return None
        identity = json.loads(marker.read_text(encoding="utf-8"))
        return Leftover(directory, str(identity["out"]), _process(identity), _elsewhere(identity))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _process(identity: dict[str, Any]) -> int | None:
    """A process number tells only on the machine, and since the start, that it is of."""
    pid = int(identity["pid"])
    return pid if identity["boot"] == work.boot() and work.started(pid) == identity["started"] else None


def _elsewhere(identity: dict[str, Any]) -> str:
    here = identity["boot"] == work.boot() or identity["host"] == os.uname().nodename
    return "" if here else str(identity["host"])


def clear(leftover: Leftover) -> None:
    """Unmounts what is mounted in it, lets go of its loop devices, and removes it. BenchError says what stays."""
    deadline = time.monotonic() + PATIENCE_S
    # What was started for that run ends with it, but may take a moment, and unmounts some of this itself.
    while in_use := [*mounts.below(leftover.directory), *_loops(leftover.directory)]:
        if time.monotonic() > deadline:
            raise BenchError(f"{in_use[0]} is still in use")
        for point in mounts.below(leftover.directory):
            # What stood behind may be gone with the process that was killed: then only a lazy unmount answers.
            run(["umount", "--lazy", str(point)], check=False)
        for device in _loops(leftover.directory):
            run(["losetup", "--detach", device], check=False)
        time.sleep(0.05)
    work.remove(leftover.directory)


def _loops(directory: Path) -> list[str]:
    """Loop devices on files in one of our directories. Of a file in a mount that is gone, the kernel tells no more than
    the name; ours have the directory's in it."""
    ours = directory.name
    return [
        f"/dev/{name}"
        for name, file in mounts.loops().items()
        if any(part == ours or part.startswith(f"{ours}.") for part in Path(file).parts)
    ]


def cleared(parents: Sequence[Path]) -> list[str]:
    """Clears away what is in these directories of runs that are over; returns what there is to say, a sentence each."""
    said = []
    for leftover in _all(parents):
        whose = f"{leftover.directory}, of a run with its results in {leftover.out}"
        if leftover.elsewhere:
            said.append(f"{whose}, stays: it was made on {leftover.elsewhere}")
        elif leftover.process is None:
            try:
                work.require_trusted(leftover.directory.parent)
                clear(leftover)
                said.append(f"{whose} that did not end well, was removed")
            except BenchError as error:
                said.append(f"{whose} that did not end well, was not removed: {error}")
    return said


def others(parents: Sequence[Path]) -> list[str]:
    """Runs that have something in these directories and are still at it: a sentence each, for the report."""
    at_it = {one.process: one.out for one in _all(parents) if one.process not in (None, os.getpid())}
    return [
        f"another run is at work on this machine (process {process}, results in {out}): each disturbs what the other"
        " measures"
        for process, out in sorted(at_it.items(), key=str)
    ]


def _all(parents: Sequence[Path]) -> list[Leftover]:
    return [leftover for parent in dict.fromkeys(parents) for leftover in found(parent)]
