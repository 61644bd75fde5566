"""The figures of a measurement that has several quantities."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cheetah.bench.figure import Figure


@dataclasses.dataclass(frozen=True)
class Metric:
    """One of several quantities of a measurement."""

    key: str
    what: str
    unit: str
    better: str = "higher"
    bar: float | None = None
    note: str = ""


def from_rounds(
    prefix: str,
    what: str,
    ours: str | None,
    metrics: Iterable[Metric],
    results: Mapping[str, Sequence[Mapping[str, Any]]],
) -> list[Figure]:
    """Returns one figure for each metric from `results`: for each contender a list of {metric key: value}."""
    figures = []
    for metric in metrics:
        samples = {}
        for name, rounds in results.items():
            values = [values[metric.key] for values in rounds if values.get(metric.key) is not None]
            if values:
                samples[name] = values
        label = f"{what}: {metric.what}" if metric.what else what
        figures.append(
            Figure(f"{prefix}/{metric.key}", label, metric.unit, ours, samples, metric.better, metric.bar, metric.note)
        )
    return figures
