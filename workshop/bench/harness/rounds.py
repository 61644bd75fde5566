"""Interleaving of contenders, so that a drift of the machine affects all of them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from bench.harness.journal import Journal, Measurement
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.rounds import in_turns
from cheetah.bench.units import short


class OutOfTime(BenchError):
    """The time of the run is over, and a measurement has no finished round."""


class Kept:
    """The journal for this run's rounds, and the time on the monotonic clock after which none begins."""

    journal: Journal | None = None
    until_s: float | None = None

    @classmethod
    def is_over(cls) -> bool:
        """Returns whether the time of the run is over."""
        return cls.until_s is not None and time.monotonic() >= cls.until_s


@contextlib.contextmanager
def kept_in(journal: Journal, minutes: float | None = None) -> Iterator[None]:
    """Has rounds recorded in a journal, and those that it has already not measured again. After these minutes no round
    begins."""
    Kept.journal = journal
    Kept.until_s = None if minutes is None else time.monotonic() + 60 * minutes
    try:
        yield
    finally:
        Kept.journal, Kept.until_s = None, None


def interleave(
    label: str, rounds: int, contenders: Mapping[str, Callable[[], Any]], show: str | Sequence[str] = "rate"
) -> dict[str, list[Any]]:
    """Calls every contender once per round and returns the list of its results.

    `contenders` maps names to functions that measure and return {metric: value}; `show` is the metric to print, or
    several. Raises OutOfTime if the time of the run is over before a round is finished.
    """
    names = list(contenders)
    measurement = Kept.journal.measurement(label) if Kept.journal else Measurement([], lambda _: None)
    done = measurement.finished[:rounds]
    for number in range(len(done), rounds):
        if Kept.is_over():
            break
        done.append({name: contenders[name]() for name in in_turns(names, number)})
        measurement.add(done[-1])
    if rounds and not done:
        raise OutOfTime(f"{label}: not measured, because the time is over; --resume goes on")
    results = {name: [one[name] for one in done] for name in names}
    several = not isinstance(show, str)
    for metric in show if several else [show]:
        for name in names:
            _print(f"{label} {metric}" if several else label, name, [result.get(metric) for result in results[name]])
    return results


def while_time_lasts(columns: Iterable[Callable[[], list[Figure]]]) -> list[Figure]:
    """Measures columns one after the other; returns the figures of those that have a finished round. Raises OutOfTime if
    none has."""
    figures: list[Figure] = []
    left_out = 0
    for column in columns:
        try:
            figures += column()
        except OutOfTime:
            # A later one may have rounds of an earlier run.
            left_out += 1
    if left_out:
        print(f"  {left_out} measurements have no round yet, because the time is over; --resume goes on", flush=True)
    if not figures:
        raise OutOfTime("the time is over before anything was measured")
    return figures


def fewest(figures: Iterable[Figure]) -> int:
    """Returns the least number of rounds of a figure that was measured. A contender that was cut off may have fewer samples."""
    return min((max(map(len, figure.samples.values())) for figure in figures if figure.samples), default=0)


def _print(label: str, name: str, measured: Sequence[float | None]) -> None:
    values = sorted(value for value in measured if value is not None)
    if values:
        spread = f"[{short(values[0])} – {short(values[-1])}]"
        print(f"  {label:<46} {name:<34} {short(values[len(values) // 2]):>9}  {spread}", flush=True)
