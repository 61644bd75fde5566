"""Runs the guard, and judges it."""

from __future__ import annotations

import time
from collections.abc import Callable

from bench.guard import builds, history
from bench.guard.builds import Build
from bench.guard.figures import GROUPS, Guarded, Turn, prepare
from bench.guard.history import gain_of
from bench.harness.rounds import interleave
from bench.scratch import Scratch
from bench.settings import Settings
from cheetah.bench.figure import CHANCE_MAX, Figure, chance, overlap
from cheetah.bench.units import MIB

SIZE_BYTES = 128 * MIB
RUNTIME_S = 1.0
ROUNDS = 5
# A loss within this is not worth a search, whatever its spread.
LOSS_MIN = 0.03


def settings_of(quick: bool, rounds: int | None) -> Settings:
    """Returns the settings of a run: about six minutes, or, quick, one that only shows that the guard works."""
    if quick:
        return Settings(True, rounds or 1, 0.2, 32 * MIB)
    return Settings(False, rounds or ROUNDS, RUNTIME_S, SIZE_BYTES)


def with_build(build: Build, turn: Turn) -> Callable[[], dict[str, float]]:
    """Returns the measurement of a figure with a build."""

    def measured() -> dict[str, float]:
        with build.in_use():
            return {"value": turn()}

    return measured


def measure(before: Build, now: Build, settings: Settings) -> list[Figure]:
    """Measures every figure with both builds, in turns."""
    figures = []
    for group in GROUPS:
        with Scratch() as earlier, Scratch() as present:
            theirs, ours = prepare(earlier, settings, before, group), prepare(present, settings, now, group)
            for guarded, turn in ours.items():
                turns = {now.name: with_build(now, turn), before.name: with_build(before, theirs[guarded])}
                results = interleave(guarded.what, settings.rounds, turns, "value")
                figures.append(figure_of(guarded, now, results))
    return figures


def figure_of(guarded: Guarded, now: Build, results: dict[str, list[dict[str, float]]]) -> Figure:
    """Returns a figure from the results of its rounds."""
    samples = {name: [result["value"] for result in rounds] for name, rounds in results.items()}
    return Figure(f"guard/{guarded.key}", guarded.what, guarded.unit, now.name, samples, guarded.better)


def is_lost(figure: Figure) -> bool:
    """Returns whether this build is worse beyond the spread of both, in enough rounds to exclude chance."""
    some, others = figure.samples.values()
    proves = chance(len(some), len(others)) <= CHANCE_MAX
    return proves and gain_of(figure) < 1 - LOSS_MIN and not overlap(some, others)


def guard(before: str | None, settings: Settings) -> int:
    """Runs the guard, prints its table, and adds it to the history; returns the exit status, 1 after a loss."""
    start = time.monotonic()
    earlier, present = builds.earlier(before), builds.present()
    print(f"guard: {present.path} beside {earlier.path}", flush=True)
    figures = measure(earlier, present, settings)
    print(history.table(figures))
    lost = [figure for figure in figures if is_lost(figure)]
    for figure in lost:
        print(f"lost: {figure.what}: {gain_of(figure):.2f} of the earlier build")
    print(f"guard: {len(figures)} figures in {time.monotonic() - start:.0f} s, {len(lost)} lost")
    if not settings.quick:
        history.add(figures)
    return 1 if lost else 0
