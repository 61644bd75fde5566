"""Search where the bytes lie: at the nodes beside at the examiner, the engine, sealed and lazy drives, and the owner's work."""

from __future__ import annotations

from bench.scratch import Scratch
from bench.search import engine, evidence, foreground, lazy, links, model, sealed
from bench.settings import Settings
from cheetah.bench.figure import Figure
from cheetah.bench.units import GIB


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures."""
    figures = []
    with Scratch() as scratch:
        found = evidence.make(scratch, GIB // 4 if settings.quick else 4 * GIB)
        figures += links.measure_shared(settings, found)
        figures += links.measure_own(settings, found)
    for measured in (model, engine, sealed, lazy, foreground):
        figures += measured.measure(settings)
    return figures
