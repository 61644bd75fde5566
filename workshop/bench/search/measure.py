"""Search where the bytes lie: at the nodes beside at the examiner, the engine, sealed and lazy drives, and the owner's work."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

from bench.harness.cases import chosen
from bench.harness.rounds import while_time_lasts
from bench.scratch import Scratch
from bench.search import engine, evidence, foreground, lazy, links, model, sealed
from bench.search.evidence import Evidence
from bench.settings import Settings
from cheetah.bench.figure import Figure
from cheetah.bench.units import GIB


@dataclasses.dataclass(frozen=True)
class Case:
    """A case of the part, with the name by which `--only` chooses it."""

    name: str
    measure: Callable[[Settings], list[Figure]]

    def __str__(self) -> str:
        return self.name


def of_large(measure_drive: Callable[[Settings, Evidence], list[Figure]], settings: Settings) -> list[Figure]:
    """Measures with an image of the size that the bars are for."""
    with Scratch() as scratch:
        return measure_drive(settings, evidence.make(scratch, GIB // 4 if settings.quick else 4 * GIB))


def cases() -> list[Case]:
    """Returns the cases, in the order in which they are measured."""
    return [
        Case("nodes behind one shared link", functools.partial(of_large, links.measure_shared)),
        Case("nodes with own links", functools.partial(of_large, links.measure_own)),
        Case("scaled model", model.measure),
        Case("engine on one processor", engine.measure),
        Case("sealed drive", sealed.measure),
        Case("lazy drive", lazy.measure),
        Case("foreground job", foreground.measure),
    ]


def measure(settings: Settings) -> list[Figure]:
    """Measures the part, or some of its cases; returns the figures."""
    return while_time_lasts(functools.partial(case.measure, settings) for case in chosen(cases(), settings))
