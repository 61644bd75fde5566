"""Interleaving of contenders, so that a drift of the machine affects all of them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cheetah.bench.rounds import in_turns
from cheetah.bench.units import short


def interleave(
    label: str, rounds: int, contenders: Mapping[str, Callable[[], Any]], show: str | Sequence[str] = "rate"
) -> dict[str, list[Any]]:
    """Calls every contender once per round and returns the list of its results.

    `contenders` maps names to functions that measure and return {metric: value}; `show` is the metric to print, or
    several.
    """
    names = list(contenders)
    results: dict[str, list[Any]] = {name: [] for name in names}
    for number in range(rounds):
        for name in in_turns(names, number):
            results[name].append(contenders[name]())
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
