"""The engine on one processor, with the image in memory, beside other programs that search bytes."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

from bench.harness.rounds import interleave, while_time_lasts
from bench.scratch import Scratch
from bench.search import engines, evidence, runs
from bench.search.engines import MEMORY, Engine
from bench.search.runs import Task
from bench.settings import Settings
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.units import GIB, MIB, iec

OURS = "cheetah search --workers 1"
BAR = 1.5
ROUNDS_MAX = 3
# Other programs search the bytes of words as they are, so that ours does so, too.
ENCODING = ("--encoding", "utf-8")
# Much more than a processor's caches.
MEMORY_BYTES, MEMORY_BYTES_QUICK = GIB // 2, 128 * MIB


def pinned(argv: Sequence[str]) -> Sequence[str]:
    """Returns what runs a command on one processor."""
    return ["taskset", "-c", str(max(os.sched_getaffinity(0))), *argv]


def of_seconds(size_bytes: int, measured: Any) -> Any:
    """Returns the rate in GB/s, and the number of hits."""
    return {"rate": size_bytes / 1e9 / measured["seconds"], "hits": measured["hits"]}


def beside(engine: Engine, size_bytes: int, image: str) -> Any:
    """Returns what another program needs and finds."""
    return of_seconds(size_bytes, engine.run(image, pinned))


def check_hits(what: str, results: dict[str, Any]) -> None:
    """Raises BenchError if a program counts other hits of words than ours. bulk_extractor is not compared: it finds some twice."""
    ours = results[OURS][0]["hits"]
    for name, rounds in results.items():
        if name in (MEMORY, engines.BULK):
            continue
        for one in rounds:
            if one["hits"] not in (ours, None):
                raise BenchError(f"{what}: {name} has {one['hits']:.0f} hits instead of {ours:.0f}")


def figures_of(task: Task, results: dict[str, Any]) -> list[Figure]:
    """Returns the figures beside the other programs and beside memory, and the counts of hits."""
    what, key = f"on one processor: {task.what}", f"search/engine-{task.key}"
    rates = {name: [one["rate"] for one in rounds] for name, rounds in results.items()}
    bounded = {name: rates[name] for name in (OURS, MEMORY)}
    others = {name: values for name, values in rates.items() if name != MEMORY}
    counted = {name: [one["hits"] for one in rounds if one.get("hits") is not None] for name, rounds in results.items()}
    hits = {name: values for name, values in counted.items() if values}
    return [
        Figure(key, what, "GB/s", OURS, others, "higher", BAR),
        Figure(f"{key}/memory", f"{what}, beside memory's bandwidth", "GB/s", OURS, bounded),
        Figure(f"{key}/hits", what, "hits", None, hits),
    ]


def measure_one(settings: Settings, task: Task, image: str, others: Sequence[Engine]) -> list[Figure]:
    """Measures one search beside the other programs."""
    memory_bytes = MEMORY_BYTES_QUICK if settings.quick else MEMORY_BYTES
    turns: dict[str, Callable[[], Any]] = {
        OURS: lambda: of_seconds(task.size_bytes, task.run(image, ("--workers", "1"), pinned))
    }
    for engine in others:
        turns[engine.name] = functools.partial(beside, engine, task.size_bytes, image)
    turns[MEMORY] = lambda: {"rate": engines.memory_rate(memory_bytes, pinned) / 1e9}
    results = interleave(f"one processor: {task.what}", min(settings.rounds, ROUNDS_MAX), turns)
    if task.hits is not None:
        check_hits(task.what, results)
    return figures_of(task, results)


def measure(settings: Settings) -> list[Figure]:
    """Searches an image in memory for words, and for all kinds of data."""
    with Scratch() as scratch:
        found = evidence.make(scratch, settings.size_bytes, with_text=True, encodings=("utf-8",))
        print(f"search: the engine on one processor, {iec(found.size_bytes)}, half of it text", flush=True)
        few, many = runs.tasks(found, ENCODING)
        kinds = Task("kinds", "all kinds of data", ("--find", "all", *ENCODING), found.size_bytes)
        searches = (
            (few, engines.for_words(scratch, found.few)),
            (many, engines.for_words(scratch, found.many)),
            (kinds, engines.for_kinds(scratch)),
        )
        return while_time_lasts(
            functools.partial(measure_one, settings, task, found.path, others) for task, others in searches
        )
