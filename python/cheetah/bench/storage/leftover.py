"""What a run that was killed left behind: found by its marker, and cleared away once nobody uses it."""

import dataclasses
import json
import os
import stat
from pathlib import Path
from typing import Any

from cheetah.bench.failure import BenchError
from cheetah.bench.process import run
from cheetah.bench.storage import mounts, work

MARKER_BYTES_MAX = 64 << 10


@dataclasses.dataclass(frozen=True)
class Leftover:
    """A directory with our marker in it."""

    directory: Path
    out: str
    """Where that run kept its results."""
    alive: str
    """Why it may still be in use; "" where no process of that run lives."""


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
        return Leftover(directory, str(identity["out"]), _alive(identity))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _alive(identity: dict[str, Any]) -> str:
    """A process number tells only on the machine, and since the start, that it is of."""
    if identity["boot"] != work.boot():
        # Another machine's, or from before a restart. After a restart nothing lives; of another machine nobody knows.
        return "" if identity["host"] == os.uname().nodename else f"it was made on {identity['host']}"
    if work.started(identity["pid"]) == identity["started"]:
        return f"process {identity['pid']} is still at it"
    return ""


def clear(leftover: Leftover) -> None:
    """Unmounts what is mounted in it, lets go of its loop devices, and removes it. BenchError says what stays."""
    for point in mounts.below(leftover.directory):
        # What stood behind may be gone with the process that was killed: then only a lazy unmount answers.
        run(["umount", "--lazy", str(point)], timeout_s=60)
    for name, file in mounts.loops().items():
        # Of a file in a mount that is gone, the kernel tells no more than the name; ours have the directory's in it.
        if leftover.directory.name in file:
            run(["losetup", "--detach", f"/dev/{name}"], timeout_s=60)
    work.remove(leftover.directory)


def cleared(parents: list[Path]) -> list[str]:
    """Clears away what is in these directories of runs that are over; returns what there is to say, a sentence each."""
    said = []
    for parent in dict.fromkeys(parents):
        for leftover in found(parent):
            whose = f"{leftover.directory}, of a run with its results in {leftover.out}"
            if leftover.alive:
                said.append(f"{whose}, stays: {leftover.alive}")
                continue
            try:
                clear(leftover)
                said.append(f"{whose} that did not end well, was removed")
            except BenchError as error:
                said.append(f"{whose} that did not end well, was not removed: {error}")
    return said
