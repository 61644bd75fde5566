"""Prepares a run: looks for evidence, removes leftovers of killed runs, and provides the image."""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

from cheetah.bench.failure import BenchError
from cheetah.bench.storage.run import image, safety
from cheetah.bench.storage.settings import Settings, TargetSpec
from cheetah.bench.storage.steps import need_bytes
from cheetah.bench.storage.targets import leftover, mounts, work
from cheetah.bench.storage.targets.directory import DirectoryTarget, SpaceReservations, require_space
from cheetah.bench.storage.targets.disk_model import DiskModelTarget
from cheetah.bench.storage.targets.ram_drive import DriveTarget
from cheetah.bench.storage.targets.target import Target
from cheetah.bench.units import MIB

# The journal, the results and the report.
RESULTS_BYTES = 32 * MIB


@dataclasses.dataclass(frozen=True)
class Prepared:
    """The state before the first step."""

    image: Path
    need_bytes: int
    """The argument of `Target.enter`."""
    targets: tuple[Target, ...]
    warnings: tuple[str, ...]
    """Warnings for the report."""


def prepare(settings: Settings, say: Callable[[str], None]) -> Prepared:
    """Prepares a run. Raises Refused because of evidence, BenchError if the run cannot begin. `say` receives sentences
    for the user. Nothing is written to a target yet."""
    warnings = safety.check(settings)
    places = [*(target.directory for target in settings.targets if target.directory), settings.out, work.parent()]
    warnings += [*shared_disks(settings), *leftover.others(places)]
    for sentence in [*warnings, *leftover.cleared(places)]:
        say(sentence)
    try:
        settings.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BenchError(
            f"{settings.out}: the directory for the results cannot be created: {error.strerror}"
        ) from error
    if not os.access(settings.out, os.W_OK | os.X_OK):
        raise BenchError(f"{settings.out} cannot be written to: name another directory for the results with --out")
    require_space(settings.out, RESULTS_BYTES)
    source = image.get(settings, say)
    size = source.stat().st_size
    room = SpaceReservations()
    targets = tuple(made(target, settings, size, room) for target in settings.targets)
    return Prepared(source, need_bytes(settings, size), targets, tuple(warnings))


def shared_disks(settings: Settings) -> list[str]:
    """Returns a warning for each disk that several directories are on."""
    by_disk: dict[str, list[str]] = {}
    for target in settings.targets:
        if target.directory is None or not target.directory.is_dir():
            continue
        disk = mounts.disk_of(target.directory) or f"file system {target.directory.stat().st_dev}"
        by_disk.setdefault(disk, []).append(str(target.directory))
    return [
        f"{' and '.join(directories)} are on one disk ({disk}): differences between them are those of chance or of their"
        " file systems"
        for disk, directories in by_disk.items()
        if len(set(directories)) > 1
    ]


def made(spec: TargetSpec, settings: Settings, file_bytes: int, room: SpaceReservations) -> Target:
    """Returns a target for files up to a size; `room` is shared by all targets."""
    if spec.directory is not None:
        return DirectoryTarget(spec.name, spec.directory, settings.out, file_bytes, room, spec.fs, spec.readahead_bytes)
    assert spec.fs is not None
    if spec.drive is None:
        return DiskModelTarget(spec.name, spec.disk_model, spec.fs, settings.out, file_bytes, spec.readahead_bytes)
    return DriveTarget(spec.name, spec.drive, spec.fs, settings.out, file_bytes, spec.readahead_bytes)
