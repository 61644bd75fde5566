"""Measures one step: its commands in sequence, until their output is on the target."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from cheetah.bench.storage.measurement import cache, counters, reserve
from cheetah.bench.storage.sample import Outcome, Sample
from cheetah.bench.storage.steps.step import Command
from cheetah.bench.storage.targets.target import ReadyTarget
from cheetah.bench.system import counted, pages, tool
from cheetah.bench.units import MIB

STOLEN_SHARE = 0.1
"""From this share on, processor time taken by the host of a virtual machine causes a warning."""
MOVED_TIMES, MOVED_BYTES = 2, 16 * MIB
"""Transfers of the target's device above this multiple of the tool's requests cause a warning."""
HARNESS_SHARE = 0.01
"""The share of the tool's time and bytes that measuring may cost."""
BOTTLENECK_S_MIN = 0.1
"""The kernel counts processor time in hundredths of a second, so the bottleneck of a shorter step is unclear."""
HARNESS_CPU_S = 0.05
"""Below this, the harness's own time is insignificant."""


FLUSHED = ".flushed"
"""A time stamp beside the work directory."""


class Abandoned(Exception):
    """A tool can neither continue nor be ended: its target is unusable from now on."""

    def __init__(self, sample: Sample):
        super().__init__(sample.problem)
        self.sample = sample


def measure(
    blank: Sample,
    commands: Sequence[Command],
    ready: ReadyTarget,
    limit_s: float,
    prepare: Callable[[Sample], Sample] = lambda sample: sample,
    busy: Callable[[str], tuple[float, float] | None] = lambda printed: None,
) -> tuple[Sample, str]:
    """Runs the commands of a step and fills in the sample; also returns their output. Failures are recorded in the
    sample. `prepare` is called when all is ready: it brings the caches into the wanted state. `busy` is the step's.

    Raises Abandoned if a tool cannot be ended at the limit.
    """
    try:
        with contextlib.ExitStack() as stack:
            tools = [stack.enter_context(_tool(command, ready.directory)) for command in commands]
            words = pages.flush_words(ready.directory, ready.directory.parent / FLUSHED)
            flush = stack.enter_context(tool.Tool(words, ready.directory))
            for one in (*tools, flush):
                one.await_ready()
            blank = prepare(blank)
            return _measured(blank, commands, tools, flush, ready, limit_s, busy)
    except _MeasurementFailed as bad:
        sample = dataclasses.replace(blank, outcome=bad.outcome, problem=str(bad))
        if bad.abandoned:
            raise Abandoned(sample) from None
        return sample, ""


def _measured(
    blank: Sample,
    commands: Sequence[Command],
    tools: Sequence[tool.Tool],
    flush: tool.Tool,
    ready: ReadyTarget,
    limit_s: float,
    busy: Callable[[str], tuple[float, float] | None],
) -> tuple[Sample, str]:
    ourselves, before = _HarnessUsage.now(), counters.read(ready.device)
    until_s = time.monotonic() + limit_s
    watch = reserve.watch(ready)
    rans = [_run(command, one, until_s, limit_s, watch) for command, one in zip(commands, tools, strict=True)]
    flushed = _flush(flush, until_s)
    after, then = counters.read(ready.device), _HarnessUsage.now()
    printed = "".join(ran.printed + ran.complaint for ran in rans)
    sample = dataclasses.replace(
        _filled(blank, rans, flushed, before, after, busy(printed)),
        harness_cpu_s=round(then.cpu_s - ourselves.cpu_s + sum(ran.harness_cpu_s for ran in [*rans, flushed]), 6),
        harness_bytes=then.moved_bytes - ourselves.moved_bytes,
        warnings=(*blank.warnings, *flushed.complaint.splitlines()) if flushed.complaint else blank.warnings,
    )
    return _judged(sample), printed


class _MeasurementFailed(Exception):
    def __init__(self, outcome: Outcome, sentence: str, abandoned: bool = False):
        super().__init__(sentence)
        self.outcome = outcome
        self.abandoned = abandoned


def _tool(command: Command, directory: Path) -> tool.Tool:
    try:
        return tool.Tool(command.argv, directory, command.stdout)
    except OSError as error:
        raise _MeasurementFailed(Outcome.FAILED, f"{_name(command)} could not be started: {error}") from None


def _name(command: Command) -> str:
    return Path(command.argv[0]).name


def _run(
    command: Command, one: tool.Tool, until_s: float, limit_s: float, watch: Callable[[], str] | None
) -> tool.ToolRun:
    name = _name(command)
    try:
        ran = one.run(max(until_s - time.monotonic(), 0.0), watch)
    except tool.StoppedByWatch as stopped:
        raise _MeasurementFailed(Outcome.FAILED, f"{name}: {stopped}", stopped.abandoned) from None
    except tool.TimedOut as late:
        raise _MeasurementFailed(
            Outcome.HUNG, late_words(f"{name} was not done after {limit_s:.3g} s", late), late.abandoned
        ) from None
    except OSError as error:
        raise _MeasurementFailed(Outcome.FAILED, f"{name} could not be started: {error}") from None
    if ran.exit_code in command.good:
        return ran
    how = f"exit code {ran.exit_code}" if ran.exit_code >= 0 else f"ended by signal {-ran.exit_code}"
    raise _MeasurementFailed(Outcome.FAILED, f"{name}: {how}: {ran.last_words}")


def _flush(one: tool.Tool, until_s: float) -> tool.ToolRun:
    try:
        return cache.flushed(one, max(until_s - time.monotonic(), 1.0))
    except tool.TimedOut as late:
        raise _MeasurementFailed(
            Outcome.HUNG, late_words("its output was not on the device in time", late), late.abandoned
        ) from None
    except OSError as error:
        raise _MeasurementFailed(Outcome.FAILED, str(error)) from None


def late_words(what: str, late: tool.TimedOut) -> str:
    """Returns the sentence about something that was not done in time."""
    if late.abandoned:
        return f"{what}, and cannot be ended: it waits for the target, which is left out from here on"
    return f"{what}, and was ended; --step-limit allows more"


def _filled(
    blank: Sample,
    rans: Sequence[tool.ToolRun],
    flush: tool.ToolRun,
    before: counters.Counters,
    after: counters.Counters,
    worked: tuple[float, float] | None,
) -> Sample:
    tool_s = sum(ran.seconds for ran in rans)
    cpu_s = sum(ran.cpu_s for ran in rans)
    seconds = tool_s + flush.seconds
    # If a tool reports how long it worked, its start does not count.
    work_s, work_cpu_s = (worked[0] + flush.seconds, min(worked[1], cpu_s)) if worked else (seconds, cpu_s)
    links = counted.links()
    busy = counters.shares(before, after, work_cpu_s / max(work_s, 1e-6), links, work_s, cpu_s - work_cpu_s)
    long_enough = work_s >= BOTTLENECK_S_MIN
    return dataclasses.replace(
        blank,
        outcome=Outcome.DONE,
        seconds=seconds,
        tool_s=tool_s,
        flush_s=flush.seconds,
        cpu_s=cpu_s,
        memory_peak_bytes=max((ran.memory_peak_bytes for ran in rans if ran.memory_peak_bytes), default=None),
        read_bytes=_sum([ran.read_bytes for ran in rans]),
        written_bytes=_sum([ran.written_bytes for ran in rans]),
        device_read_bytes=_difference(before.device_read_bytes, after.device_read_bytes),
        device_written_bytes=_difference(before.device_written_bytes, after.device_written_bytes),
        network_bytes=counters.network_bytes(before, after),
        busy=busy,
        bottleneck=counters.bottleneck(busy, counted.usable_processors()) if long_enough else "unclear",
    )


def _judged(sample: Sample) -> Sample:
    """Adds warnings about the measurement."""
    said = list(sample.warnings)
    if sample.busy.get("stolen", 0.0) >= STOLEN_SHARE:
        said.append(f"the host took {sample.busy['stolen']:.0%} of this machine's processor time")
    asked_bytes = (sample.read_bytes or 0) + (sample.written_bytes or 0)
    moved_bytes = (sample.device_read_bytes or 0) + (sample.device_written_bytes or 0)
    if moved_bytes > MOVED_TIMES * asked_bytes + MOVED_BYTES:
        said.append(
            f"the target's device moved {moved_bytes / MIB:,.0f} MiB, and the tool asked for {asked_bytes / MIB:,.0f} MiB: "
            "others were at work on it, or more was read ahead than was used"
        )
    if sample.harness_cpu_s > max(HARNESS_CPU_S, HARNESS_SHARE * (sample.seconds or 0.0)):
        said.append(f"measuring itself used {sample.harness_cpu_s:.2f} s of processor time")
    return dataclasses.replace(sample, warnings=tuple(said))


def _sum(counted: Sequence[int | None]) -> int | None:
    known = [count for count in counted if count is not None]
    return sum(known) if len(known) == len(counted) else None


def _difference(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


@dataclasses.dataclass(frozen=True)
class _HarnessUsage:
    """The resource usage of this process so far."""

    cpu_s: float
    moved_bytes: int
    """Of this thread: the process's would include all tools."""

    @classmethod
    def now(cls) -> "_HarnessUsage":
        return cls(time.process_time(), counted.own_bytes())
