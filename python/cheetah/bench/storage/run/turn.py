"""One turn: a step on a target, prepared, measured and cleaned up."""

import contextlib
import dataclasses
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from cheetah.bench.storage.measurement import cache, measure, tool
from cheetah.bench.storage.sample import COLD, Outcome, Sample
from cheetah.bench.storage.steps.step import NotReached, Skipped, Step, Workplace
from cheetah.bench.storage.targets.target import ReadyTarget
from cheetah.bench.units import MIB

RESIDENT_SHARE_MAX = 0.01
"""A step with more of its inputs in memory is not cold."""


def take(blank: Sample, step: Step, ready: ReadyTarget, place: Workplace, limit_s: float) -> Sample:
    """Measures a step. A failure is recorded in the sample.

    Raises measure.Abandoned if the target is unusable from now on.
    """
    try:
        remove(step.outputs(place), place)
        commands = step.commands(place)
        inputs = step.inputs(place)
        sample = dataclasses.replace(blank, warnings=tuple(step.warnings(place)))
        sample, printed = measure.measure(
            sample, commands, ready, limit_s, lambda sample: _brought_into(sample, inputs, ready), step.busy
        )
        sample = _judged(sample, step, place, printed)
    except NotReached as why:
        return dataclasses.replace(blank, outcome=Outcome.NOT_REACHED, problem=str(why))
    except Skipped as why:
        return dataclasses.replace(blank, outcome=Outcome.SKIPPED, problem=str(why))
    except tool.TimedOut as late:
        why_late = measure.late_words("earlier writes were not on the device in time", late)
        sample = dataclasses.replace(blank, outcome=Outcome.HUNG, problem=why_late)
        if late.abandoned:
            raise measure.Abandoned(sample) from None
    except OSError as error:
        sample = dataclasses.replace(blank, outcome=Outcome.FAILED, problem=f"it could not be prepared: {error}")
    if sample.outcome is not Outcome.DONE:
        # The next step must not find half of its input.
        with contextlib.suppress(OSError):
            remove(step.outputs(place), place)
    return sample


def make(step: Step, ready: ReadyTarget, place: Workplace, limit_s: float) -> None:
    """Does a step unmeasured, for a step that needs its output. Raises NotReached if it fails."""
    blank = Sample("", step.key, "", 0, Outcome.DONE)
    try:
        remove(step.outputs(place), place)
        sample, printed = measure.measure(blank, step.commands(place), ready, limit_s)
    except (OSError, Skipped) as error:
        raise NotReached(f"{step.key}, which it needs, could not be done again: {error}") from None
    sample = _judged(sample, step, place, printed)
    if sample.outcome is not Outcome.DONE:
        raise NotReached(f"{step.key}, which it needs, could not be done again: {sample.problem}")


def _judged(sample: Sample, step: Step, place: Workplace, printed: str) -> Sample:
    """Adds the step's evaluation of the tools' output."""
    if sample.outcome is not Outcome.DONE:
        return sample
    if failure := step.failure(place, printed) or _unread(sample, step, place):
        return dataclasses.replace(sample, outcome=Outcome.FAILED, problem=failure)
    return dataclasses.replace(sample, bytes_per_s=step.rate(printed))


def _unread(sample: Sample, step: Step, place: Workplace) -> str:
    """Returns that a tool has read less than it must, if that is known."""
    least_bytes = step.least_read_bytes(place)
    if sample.read_bytes is None or sample.read_bytes >= least_bytes:
        return ""
    return (
        f"{step.tools[0]} read {sample.read_bytes / MIB:,.1f} of {least_bytes / MIB:,.1f} MiB without reporting an error: it"
        " ends so when a read fails"
    )


def remove(paths: Iterable[Path], place: Workplace) -> None:
    """Removes files and directories of a step, only inside its place."""
    for path in paths:
        if not path.is_relative_to(place.directory) or path == place.directory:
            raise ValueError(f"{path} is not in {place.directory}")
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _brought_into(blank: Sample, inputs: Sequence[Path], ready: ReadyTarget) -> Sample:
    """Brings the inputs into the requested state, and records the state they are in."""
    if blank.state == COLD:
        cache.make_cold([*inputs, *ready.pages_of], ready.directory)
    else:
        cache.make_warm(inputs, ready.directory)
    share = cache.resident_share(inputs)
    said = list(blank.warnings)
    if share is None:
        if inputs:
            said.append("the kernel does not report how much of its inputs was in memory")
    elif blank.state == COLD and share > RESIDENT_SHARE_MAX and not ready.always_cached:
        said.append(f"not cold: {share:.0%} of {_names(inputs)} was in memory")
    elif blank.state != COLD and share < 1 - RESIDENT_SHARE_MAX:
        said.append(f"not warm: {share:.0%} of {_names(inputs)} was in memory")
    behind = cache.resident_share(ready.pages_of) if blank.state == COLD else None
    if behind is not None and behind > RESIDENT_SHARE_MAX:
        said.append(f"not cold: {behind:.0%} of {_names(ready.pages_of)}, which is behind the target, was in memory")
    return dataclasses.replace(blank, resident_share_before=share, warnings=tuple(said))


def _names(paths: Sequence[Path]) -> str:
    return paths[0].name if len(paths) == 1 else f"{len(paths)} files"
