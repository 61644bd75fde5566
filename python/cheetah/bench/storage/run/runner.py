"""A run: every step on every target in turns, as often as requested."""

import collections
import contextlib
import dataclasses
import os
import re
import shutil
import signal
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cheetah.bench.rounds import in_turns
from cheetah.bench.storage.measurement import cache, measure, pinned, quiet
from cheetah.bench.storage.run import part, turn
from cheetah.bench.storage.run.journal import Journal
from cheetah.bench.storage.run.progress import Event, Tell
from cheetah.bench.storage.sample import COLD, Outcome, Sample
from cheetah.bench.storage.settings import Settings
from cheetah.bench.storage.steps import NotReached, Step, Workplace
from cheetah.bench.storage.targets.active import ActiveTargets, activated
from cheetah.bench.storage.targets.target import ReadyTarget, Target

DONE, FAILED = 0, 1
NOT_ALL_DROPPED = (
    "without root, cold means that the files a step reads were dropped from memory; directories and the file "
    "systems' own metadata may still be cached"
)
GO_ON = "interrupted: the same command with --resume continues it"


def run(
    settings: Settings, tell: Tell, targets: Sequence[Target], steps: Sequence[Step], source: Path, need_bytes: int
) -> tuple[int, dict[str, Any]]:
    """Measures `steps` on `targets` with the image `source`; returns the exit code, 0 or 1, and the part of the
    results. A failing target, step or tool does not stop the others; an interrupted run returns what it has.

    Raises BenchError if `settings.out` cannot be used.
    """
    return Run(settings, tell, targets, steps, source).go(need_bytes)


@dataclasses.dataclass(frozen=True)
class _Turn:
    """One measurement to be made."""

    repetition: int
    step: Step
    state: str
    target: str

    @property
    def key(self) -> tuple[str, str, str, int]:
        return self.target, self.step.key, self.state, self.repetition


class Run:
    """A run."""

    def __init__(self, settings: Settings, tell: Tell, targets: Sequence[Target], steps: Sequence[Step], source: Path):
        self._settings = settings
        self._tell = tell
        self._targets = list(targets)
        self._steps = list(steps)
        self._source = source
        self._warnings: list[str] = []
        self._began_s = time.monotonic()
        self._took_s: collections.defaultdict[str, list[float]] = collections.defaultdict(list)
        """By step: the durations of its turns."""
        self._failed: dict[tuple[str, str], str] = {}
        """By target and step: why it failed the last time."""
        self._made: collections.defaultdict[str, set[Path]] = collections.defaultdict(set)
        """By target: files and directories its steps may have left."""
        self._said: set[tuple[str, ...]] = set()
        """By target, step and kind: warnings that the user has seen. The results have all of them."""
        self._plan = list(self._turns())
        self._left = list(self._plan)
        self._journal: Journal

    def go(self, need_bytes: int) -> tuple[int, dict[str, Any]]:
        """Runs everything."""
        binding = {**self._settings.binding(), "image_bytes": self._source.stat().st_size, **_machine()}
        self._journal = Journal(self._settings.out, binding, self._settings.resume)
        interrupted = False
        try:
            with _interruptible():
                try:
                    self._measure(need_bytes)
                except KeyboardInterrupt:
                    interrupted = True
                    self._left = [one for one in self._plan if one.key not in self._journal.taken]
                    self._warn(GO_ON)
        finally:
            self._journal.close()
        samples = self._samples()
        bad = any(sample.outcome not in (Outcome.DONE, Outcome.SKIPPED) for sample in samples)
        self._say(
            "done", said=f"{sum(sample.outcome is Outcome.DONE for sample in samples)} of {len(self._plan)} measured"
        )
        warnings = [*self._journal.remarks, *self._warnings]
        made = part.made(self._settings, self._targets, self._steps, samples, self._journal.about, warnings)
        return (FAILED if bad or interrupted else DONE), made

    def _turns(self) -> Iterator[_Turn]:
        """Yields all turns in order; a drift of the machine affects all targets."""
        names = [target.name for target in self._targets]
        for number in range(self._settings.repetitions):
            for step in self._steps:
                for state in self._states(step):
                    for name in in_turns(names, number):
                        yield _Turn(number + 1, step, state, name)

    def _states(self, step: Step) -> Sequence[str]:
        """Returns the states of a step; one that does not read is measured once, as cold."""
        return self._settings.states if step.reads else (COLD,)

    def _measure(self, need_bytes: int) -> None:
        self._left = [one for one in self._plan if not self._journal.is_done(one.key)]
        self._skip_missing_tools()
        if not self._left:
            return
        dropped = any(one.state == COLD for one in self._left) and not cache.drops_all()
        remarks = [*[NOT_ALL_DROPPED] * dropped, *filter(None, [quiet.disturbance()])]
        for remark in remarks:
            self._say("note", said=remark)
        wanted = {one.target for one in self._left}
        targets = [target for target in self._targets if target.name in wanted]
        around = activated(targets, need_bytes, lambda name: self._say("entering", target=name), self._warn)
        tools = {tool for step in self._steps for tool in step.tools}
        with pinned.pinned([*tools, cache.SYNC[0], cache.SYNC_EACH[0]]), around as there, self._leaving():
            self._journal.tell({name: ready.about for name, ready in there.ready.items()}, remarks)
            for name, (outcome, why) in there.lost.items():
                self._skip_target(name, outcome, why)
            self._note_always_cached(there)
            while self._left:
                self._take(self._left.pop(0), there)

    def _note_always_cached(self, there: ActiveTargets) -> None:
        cold = {one.target for one in self._left if one.state == COLD}
        for name, ready in there.ready.items():
            if ready.always_cached and name in cold:
                self._warn(f"{name} is memory itself: its files are cached in cold steps, too")

    @contextlib.contextmanager
    def _leaving(self) -> Iterator[None]:
        try:
            yield
        finally:
            self._say("leaving")

    def _skip_missing_tools(self) -> None:
        """Skips the steps whose tool is missing, with one warning each."""
        for step in self._steps:
            missing = [tool for tool in step.tools if shutil.which(tool) is None]
            if missing:
                why = f"{step.key} was skipped: {' and '.join(missing)} is not installed"
                self._warn(why)
                self._skip([one for one in self._left if one.step is step], Outcome.SKIPPED, why)

    def _skip_target(self, name: str, outcome: Outcome, why: str) -> None:
        self._warn(f"{name}: {why}")
        self._skip([one for one in self._left if one.target == name], outcome, why)

    def _skip(self, turns: Sequence[_Turn], outcome: Outcome, why: str) -> None:
        """Records a reason once for each step and target, and removes these turns."""
        said = set()
        for one in turns:
            self._left.remove(one)
            self._failed[one.target, one.step.key] = why
            if one.key[:3] not in said:
                said.add(one.key[:3])
                self._journal.add(Sample(*one.key, outcome, why))

    def _take(self, one: _Turn, there: ActiveTargets) -> None:
        """Takes a turn, with any outcome."""
        self._say_of("measuring", one)
        began_s = time.monotonic()
        blank = Sample(*one.key, Outcome.DONE)
        try:
            sample = self._sample(blank, one, there.ready[one.target])
        except measure.Abandoned as abandoned:
            sample = dataclasses.replace(blank, outcome=Outcome.HUNG, problem=str(abandoned))
            there.hung.add(one.target)
            there.lose(one.target, Outcome.NOT_REACHED, f"it was left out after {one.step.key} hung on it")
        self._failed.pop((one.target, one.step.key), None)
        if sample.outcome is not Outcome.DONE:
            self._failed[one.target, one.step.key] = sample.problem
        self._took_s[one.step.key].append(time.monotonic() - began_s)
        self._journal.add(sample)
        said = [sample.problem] * bool(sample.problem) + [*sample.warnings]
        new = [text for text in said if (one.target, *one.step.key.split("/")[:1], _kind(text)) not in self._said]
        self._said.update((one.target, *one.step.key.split("/")[:1], _kind(text)) for text in said)
        self._say_of("measured", one, seconds=sample.seconds, said="; ".join(new))
        if one.target in there.lost:
            self._skip_target(one.target, *there.lost[one.target])

    def _sample(self, blank: Sample, one: _Turn, ready: ReadyTarget) -> Sample:
        place = Workplace(ready.directory, self._source)
        try:
            self._require(one, ready, place)
        except NotReached as why:
            return dataclasses.replace(blank, outcome=Outcome.NOT_REACHED, problem=str(why))
        except OSError as error:
            why_not = f"what it needs could not be looked at: {error}"
            return dataclasses.replace(blank, outcome=Outcome.FAILED, problem=why_not)
        self._made[one.target].update([*one.step.outputs(place), *one.step.needs(place)])
        sample = turn.take(blank, one.step, ready, place, self._settings.step_limit_s)
        self._tidy(one.target, place)
        return sample

    def _require(self, one: _Turn, ready: ReadyTarget, place: Workplace) -> None:
        """Provides a step's input: a step measured by an earlier run is done again, unmeasured."""
        for earlier in self._steps:
            if earlier.key not in one.step.after:
                continue
            if why := self._failed.get((one.target, earlier.key)):
                raise NotReached(f"{earlier.key}, which it needs, was not done here: {why}")
            needed = set(one.step.needs(place))
            if any(path in needed and not path.exists() for path in earlier.outputs(place)):
                turn.make(earlier, ready, place, self._settings.step_limit_s)

    def _tidy(self, target: str, place: Workplace) -> None:
        """Removes files that no coming step needs before they are made again."""
        coming = [one.step for one in self._left if one.target == target]
        unneeded = [path for path in self._made[target] if not _is_needed(path, coming, place)]
        try:
            turn.remove(unneeded, place)
            self._made[target].difference_update(unneeded)
        except OSError as error:
            self._warn(f"{target}: files that are no longer needed could not be removed: {error}")

    def _samples(self) -> list[Sample]:
        """Returns the samples in the order of the plan, those of an earlier run included."""
        taken = self._journal.taken
        return [taken[one.key] for one in self._plan if one.key in taken]

    def _warn(self, sentence: str) -> None:
        self._warnings.append(sentence)
        self._say("note", said=sentence)

    def _say(self, stage: str, **more: Any) -> None:
        self._tell(self._event(stage, self._left, **more))

    def _say_of(self, stage: str, one: _Turn, **more: Any) -> None:
        what: dict[str, Any] = {"target": one.target, "step": one.step.key, "state": one.state}
        what |= {"repetition": one.repetition, "expected_s": self._expected_s(one.step)}
        self._tell(self._event(stage, [one] * (stage == "measuring") + self._left, **what, **more))

    def _event(self, stage: str, left: Sequence[_Turn], **more: Any) -> Event:
        elapsed_s = round(time.monotonic() - self._began_s, 3)
        return Event(stage, len(self._plan) - len(left), len(self._plan), elapsed_s, self._left_s(left), **more)

    def _expected_s(self, step: Step) -> float | None:
        took_s = self._took_s.get(step.key)
        return statistics.mean(took_s) if took_s else None

    def _left_s(self, turns: Sequence[_Turn]) -> float | None:
        """Estimates the remaining time from turns of the same step, or of any; None before every step was done
        once."""
        known = [self._expected_s(one.step) for one in turns]
        return sum(took_s for took_s in known if took_s is not None) if None not in known else None


def _kind(warning: str) -> str:
    """Returns a warning without its numbers."""
    return re.sub(r"\d[\d.,]*", "#", warning)


def _machine() -> dict[str, str]:
    """Returns the other facts that the samples depend on: halves of a run on different kernels must not be compared."""
    system = os.uname()
    return {"host": system.nodename, "kernel": system.release}


def _is_needed(path: Path, coming: Sequence[Step], place: Workplace) -> bool:
    """Returns whether a coming step works on a path as it is now."""
    for step in coming:
        if any(path.is_relative_to(other) or other.is_relative_to(path) for other in step.needs(place)):
            return True
        if path in step.outputs(place):
            return False
    return False


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Makes SIGTERM and the loss of the terminal interrupt a run as Ctrl-C does, once only: started processes and
    mounts must be taken down."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def interrupt(*_: object) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        if before[number] is not signal.SIG_IGN or number is signal.SIGINT:
            signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
