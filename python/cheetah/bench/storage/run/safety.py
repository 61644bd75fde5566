"""Protects evidence: nothing is written unasked near a custody log, or where one is behind a mount.

It looks at all directories of a target, up to a limit; at those above it, up to its file system's mount point, on
both sides of a bind mount; and at what the file system is on, through partitions, arrays, loop devices and FUSE: the
drive, image or disk image there.
"""

import collections
import contextlib
import dataclasses
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cheetah.bench.failure import Refused
from cheetah.bench.storage.settings import Settings
from cheetah.bench.storage.targets import mounts, work

SUFFIX = ".custody"
BLOCK = Path("/sys/class/block")
NAMES_MAX = 100_000
"""The maximum number of names examined in a target, those near its top first."""
DEPTH_MAX = 16
"""The maximum depth of loop devices on file systems on loop devices."""


@dataclasses.dataclass
class EvidenceSearch:
    """The findings about a directory."""

    evidence: list[str] = dataclasses.field(default_factory=list)
    """A sentence each, naming the log."""
    missed: str = ""
    """Why not all names were examined."""


def check(settings: Settings) -> list[str]:
    """Raises Refused if a target, or the directory for the results, is near evidence and that was not allowed;
    otherwise returns warnings."""
    said: list[str] = []
    for target in settings.targets:
        if target.directory is None:
            continue
        looked = search(target.directory)
        _refuse(looked.evidence, settings.beside_evidence, said)
        if looked.missed:
            said.append(f"{target.directory} was not completely searched for custody logs: {looked.missed}")
    if any(target.directory is None for target in settings.targets):
        # What is made for the run is mounted there, with its files.
        temporary = EvidenceSearch()
        _around(_existing(Path(tempfile.gettempdir())), temporary)
        _refuse(temporary.evidence, settings.beside_evidence, said, "; name another directory in TMPDIR")
    return list(dict.fromkeys([*said, *check_out(settings)]))


def check_out(settings: Settings) -> list[str]:
    """Checks the directory for the results alone."""
    out, said = EvidenceSearch(), list[str]()
    _around(_existing(settings.out), out)
    _refuse(out.evidence, settings.beside_evidence, said, "; name another directory for the results with --out")
    return said


def _refuse(evidence: list[str], wanted: bool, said: list[str], more: str = "; measure elsewhere") -> None:
    if evidence and not wanted:
        raise Refused(f"{evidence[0]}{more}, or add --beside-evidence")
    said += evidence[:1]


def search(directory: Path) -> EvidenceSearch:
    """Returns the evidence near a directory."""
    looked = EvidenceSearch()
    log = _within(directory, looked)
    if log:
        looked.evidence.append(f"{directory} holds evidence: {log} is a custody log")
    _around(directory, looked)
    return looked


def _around(directory: Path, looked: EvidenceSearch) -> None:
    """Checks the parents of a directory, by every path that leads to it, and the device it is on."""
    try:
        mount = mounts.of(directory)
    except OSError:
        return
    _above(directory, directory, mount, looked)
    if mount is None:
        return
    for alias, other in mounts.aliases(directory, mount):
        _above(directory, alias, other, looked)
    for file in behind(mount):
        for log in _beside(file):
            looked.evidence.append(f"{directory} is on {file}, which is evidence: {log} is its custody log")


def _above(directory: Path, path: Path, mount: mounts.Mount | None, looked: EvidenceSearch) -> None:
    """Looks into a directory, under one of its paths, and into those above it, up to the mount point of its file
    system. It passes bind mounts: either side may belong to a case."""
    for above in [path, *path.parents]:
        log = _directly(above)
        if log and above != path:
            looked.evidence.append(f"{directory} is in a directory with evidence: {log} is a custody log")
        elif log and not looked.evidence:
            looked.evidence.append(f"{directory} holds evidence: {log} is a custody log")
        if mount is None or (above == mount.point and mount.root == Path("/")):
            break


def _existing(path: Path) -> Path:
    """Returns the existing directory in which a path is or would be created, with links resolved."""
    return next((one for one in [path, *path.parents] if one.is_dir()), Path("/")).resolve()


def _within(directory: Path, looked: EvidenceSearch) -> Path | None:
    """Returns the first log in a directory or below, without following links or entering other file systems."""
    left = NAMES_MAX
    waiting = collections.deque([directory])
    try:
        device = directory.stat().st_dev
    except OSError:
        return None
    while waiting:
        try:
            with os.scandir(waiting.popleft()) as entries:
                for entry in entries:
                    left -= 1
                    if left < 0:
                        looked.missed = f"only the first {NAMES_MAX:,} names were examined"
                        return None
                    if entry.is_dir(follow_symlinks=False):
                        if entry.stat(follow_symlinks=False).st_dev == device and not _is_ours(entry):
                            waiting.append(Path(entry.path))
                    elif entry.name.lower().endswith(SUFFIX):
                        return Path(entry.path)
        except OSError as error:
            looked.missed = f"{error.filename or directory}: {error.strerror}"
    return None


def _is_ours(entry: "os.DirEntry[str]") -> bool:
    return entry.name.startswith(work.PREFIX) and os.path.exists(os.path.join(entry.path, work.MARKER))


def _directly(directory: Path) -> Path | None:
    with contextlib.suppress(OSError):
        return next((path for path in sorted(directory.iterdir()) if path.name.lower().endswith(SUFFIX)), None)
    return None


def _beside(file: Path) -> list[Path]:
    """Returns the logs of a file, and of the file it may be a link to."""
    named = dict.fromkeys(one.with_name(one.name + SUFFIX) for one in (file, Path(os.path.realpath(file))))
    return [log for log in named if os.path.lexists(log)]


def behind(mount: mounts.Mount, depth: int = 0) -> list[Path]:
    """Returns the files that a mount is on, at any depth: a loop device's, a drive's, an image's."""
    if depth > DEPTH_MAX:
        return []
    files: list[Path] = []
    number = mount.device if mounts.is_block(mount.device) else mounts.device(mount)
    if number is not None:
        files += _of_device(mounts.name_of(number))
    elif mount.fs.partition(".")[0] == "fuse":
        files += _named_with(str(mount.point))
    for file in list(files):
        with contextlib.suppress(OSError):
            below = mounts.of(file)
            if below and below != mount:
                files += [one for one in behind(below, depth + 1) if one not in files]
    return files


def _of_device(name: str) -> list[Path]:
    """Returns the files that a block device is on."""
    place = BLOCK / name
    if (place / "partition").exists():
        return _of_device(place.resolve().parent.name)
    files = [Path(file) for loop, file in mounts.loops().items() if loop == name]
    for slave in _entries(place / "slaves"):
        files += _of_device(slave.name)
    served = re.fullmatch(r"(ublk)b(\d+)|(nbd)\d+", name)
    if served and served[1]:
        files += [file for pid in _holding(f"/dev/ublkc{served[2]}") for file in _argued(pid)]
    elif served:
        with contextlib.suppress(OSError, ValueError):
            files += _argued(int((place / "pid").read_text(encoding="ascii")))
    return files


def _entries(directory: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return sorted(directory.iterdir())
    return []


def _processes() -> Iterator[int]:
    yield from (int(name) for name in os.listdir("/proc") if name.isdigit())


def _holding(device: str) -> Iterator[int]:
    """Yields processes that have a file open."""
    for pid in _processes():
        for link in _entries(Path(f"/proc/{pid}/fd")):
            with contextlib.suppress(OSError):
                if os.readlink(link) == device:
                    yield pid
                    break


def _named_with(point: str) -> list[Path]:
    """Returns the files in the command lines of processes started with a mount point: FUSE presents them."""
    return [file for pid in _processes() for file in _argued(pid, point)]


def _argued(pid: int, point: str = "") -> list[Path]:
    """Returns the files in a process's command line; none if `point` was given and is not in it."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
        where = os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return []
    given = [os.path.normpath(os.path.join(where, os.fsdecode(word))) for word in arguments.split(b"\0")[1:] if word]
    if point and point not in given and point not in map(os.path.realpath, given):
        return []
    return [Path(one) for one in given if one != point and os.path.isfile(one)]
