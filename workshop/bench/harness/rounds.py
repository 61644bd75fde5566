"""Interleaving of contenders, so that a drift of the machine affects all of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bench.harness.journal import Journal, Measurement
from cheetah.bench.rounds import in_turns
from cheetah.bench.units import short


class Kept:
    """The journal for this run's rounds."""

    journal: Journal | None = None


@contextlib.contextmanager
def kept_in(journal: Journal) -> Iterator[None]:
    """Has rounds recorded in a journal, and those that it has already not measured again."""
    Kept.journal = journal
    try:
        yield
    finally:
        Kept.journal = None


def interleave(
    label: str, rounds: int, contenders: Mapping[str, Callable[[], Any]], show: str | Sequence[str] = "rate"
) -> dict[str, list[Any]]:
    """Calls every contender once per round and returns the list of its results.

    `contenders` maps names to functions that measure and return {metric: value}; `show` is the metric to print, or
    several.
    """
    names = list(contenders)
    measurement = Kept.journal.measurement(label) if Kept.journal else Measurement([], lambda _: None)
    done = measurement.finished[:rounds]
    for number in range(len(done), rounds):
        done.append({name: contenders[name]() for name in in_turns(names, number)})
        measurement.add(done[-1])
    results = {name: [one[name] for one in done] for name in names}
    several = not isinstance(show, str)
    for metric in show if several else [show]:
        for name in names:
            _print(f"{label} {metric}" if several else label, name, [result.get(metric) for result in results[name]])
    return results


def _print(label: str, name: str, measured: Sequence[float | None]) -> None:
    values = sorted(value for value in measured if value is not None)
    if values:
        spread = f"[{short(values[0])} – {short(values[-1])}]"
        print(f"  {label:<46} {name:<34} {short(values[len(values) // 2]):>9}  {spread}", flush=True)
