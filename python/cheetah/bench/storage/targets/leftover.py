"""Leftovers of killed runs: found by their marker, and removed when unused."""

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
    """A directory with the marker of a run."""

    directory: Path
    out: str
    """The directory of that run's results."""
    process: int | None
    """The process of that run, if it is alive."""
    elsewhere: str
    """The machine it was made on, if another; its processes cannot be checked from here."""


def found(parent: Path) -> list[Leftover]:
    """Returns this user's leftovers directly inside a directory; links, and directories without the marker, are
    none."""
    try:
        names = sorted(path for path in parent.iterdir() if path.name.startswith(work.PREFIX))
    except OSError:
        return []
    return [one for one in map(_looked_at, names) if one is not None]


def _looked_at(directory: Path) -> Leftover | None:
    marker = directory / work.MARKER
    try:
        status, marker_status = os.lstat(directory), os.lstat(marker)
        ours = stat.S_ISDIR(status.st_mode) and stat.S_ISREG(marker_status.st_mode)
        if not ours or status.st_uid != os.geteuid() or marker_status.st_size > MARKER_BYTES_MAX:
            return None
        identity = json.loads(marker.read_text(encoding="utf-8"))
        return Leftover(directory, str(identity["out"]), _process(identity), _elsewhere(identity))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _process(identity: dict[str, Any]) -> int | None:
    """Returns the process if alive; a process id is valid only on its machine, until its next boot."""
    pid = int(identity["pid"])
    return pid if identity["boot"] == work.boot() and work.started(pid) == identity["started"] else None


def _elsewhere(identity: dict[str, Any]) -> str:
    here = identity["boot"] == work.boot() or identity["host"] == os.uname().nodename
    return "" if here else str(identity["host"])


def clear(leftover: Leftover) -> None:
    """Unmounts and detaches everything in it, and removes it. Raises BenchError with the remains."""
    deadline = time.monotonic() + PATIENCE_S
    # Processes of that run end with it, but may take a moment, and unmount some of this themselves.
    while in_use := [*mounts.below(leftover.directory), *_loops(leftover.directory)]:
        if time.monotonic() > deadline:
            raise BenchError(f"{in_use[0]} is still in use")
        for point in mounts.below(leftover.directory):
            # Its server may be gone with the killed process: then only a lazy unmount succeeds.
            run(["umount", "--lazy", str(point)], check=False)
        for device in _loops(leftover.directory):
            run(["losetup", "--detach", device], check=False)
        time.sleep(0.05)
    work.remove(leftover.directory)


def _loops(directory: Path) -> list[str]:
    """Returns loop devices on files in one of these directories. The kernel reports only the name of a file in a mount
    that is gone; these names contain the directory's."""
    ours = directory.name
    return [
        f"/dev/{name}"
        for name, file in mounts.loops().items()
        if any(part == ours or part.startswith(f"{ours}.") for part in Path(file).parts)
    ]


def cleared(parents: Sequence[Path]) -> list[str]:
    """Removes leftovers of ended runs in these directories; returns a sentence about each."""
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
                said.append(f"{whose} that did not end well, could not be removed: {error}")
    return said


def others(parents: Sequence[Path]) -> list[str]:
    """Returns a sentence for the report about each other run that uses these directories."""
    at_it = {one.process: one.out for one in _all(parents) if one.process not in (None, os.getpid())}
    return [
        f"another run is active on this machine (process {process}, results in {out}): each disturbs the other's"
        " measurements"
        for process, out in sorted(at_it.items(), key=str)
    ]


def _all(parents: Sequence[Path]) -> list[Leftover]:
    return [leftover for parent in dict.fromkeys(parents) for leftover in found(parent)]
