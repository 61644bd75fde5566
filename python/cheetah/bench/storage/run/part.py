"""The storage part of the results."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cheetah.bench import results
from cheetah.bench.figure import Figure, overlap
from cheetah.bench.storage.sample import Outcome, Sample
from cheetah.bench.storage.settings import Settings
from cheetah.bench.storage.steps import Step, described
from cheetah.bench.storage.targets.target import Target
from cheetah.bench.units import short


def made(
    settings: Settings,
    targets: Sequence[Target],
    steps: Sequence[Step],
    samples: Sequence[Sample],
    about: Mapping[str, Mapping[str, str]],
    warnings: Sequence[str],
) -> dict[str, Any]:
    """Returns the part. `samples` are in the order in which they were taken."""
    figures = list(_figures(settings.baseline, steps, samples))
    return {
        "part": "storage",
        "title": "Storage",
        "about": "The steps of an examination on each target, with the real tools, until their output is on the device.",
        "quick": settings.quick,
        "rounds": settings.repetitions,
        "finished": results.now(),
        "baseline": settings.baseline,
        "figures": [figure.to_json() for figure in figures],
        "targets": [{"name": target.name, "about": dict(about.get(target.name, {}))} for target in targets],
        "steps": described(steps),
        "samples": [sample.to_json() for sample in samples],
        "warnings": [*warnings, *_of_figures(figures)],
    }


def _figures(baseline: str, steps: Sequence[Step], samples: Sequence[Sample]) -> Iterator[Figure]:
    """Yields a figure for each step and state with measurements."""
    for step in steps:
        for state in dict.fromkeys(sample.state for sample in samples if sample.step == step.key):
            done = [
                sample
                for sample in samples
                if (sample.step, sample.state, sample.outcome) == (step.key, state, Outcome.DONE)
            ]
            has_rate = bool(done) and all(sample.bytes_per_s is not None for sample in done)
            values: dict[str, list[float]] = {}
            for sample in done:
                value = sample.bytes_per_s if has_rate else sample.seconds
                if value is not None:
                    values.setdefault(sample.target, []).append(value)
            if values:
                yield Figure(
                    f"storage/{step.key}/{state}",
                    f"{step.title}, {state}",
                    "bytes/s" if has_rate else "s",
                    None,
                    values,
                    "higher" if has_rate else "lower",
                    baseline=baseline,
                )


def _of_figures(figures: Sequence[Figure]) -> Iterator[str]:
    """Yields warnings about differences that may be chance."""
    for figure in figures:
        base = figure.samples.get(figure.baseline or "")
        for name, values in figure.samples.items():
            if base and name != figure.baseline and len(base) > 1 and len(values) > 1 and overlap(values, base):
                yield (
                    f"{figure.what}: the difference between {name} ({_spread(values)}) and {figure.baseline} "
                    f"({_spread(base)} {figure.unit}) may be chance"
                )


def _spread(values: Sequence[float]) -> str:
    return f"{short(min(values))} – {short(max(values))}"
