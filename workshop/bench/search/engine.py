"""The engine on one processor, with the image in memory, beside other programs that search bytes."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

from bench.harness.rounds import interleave, while_time_lasts
from bench.scratch import Scratch
from bench.search import engines, evidence, runs
from bench.search.engines import MEMORY, Engine
from bench.search.evidence import Evidence
from bench.search.runs import Task
from bench.settings import Settings
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.units import GIB, MIB, iec

OURS = "cheetah search --workers 1"
BAR = 1.5
# Other programs search the bytes of words as they are, so that ours does so, too.
ENCODING = ("--encoding", "utf-8")
# Much more than a processor's caches.
MEMORY_BYTES, MEMORY_BYTES_QUICK = GIB // 2, 128 * MIB
# Why counts differ.
KINDS_NOTE = (
    "All kinds of data: each program counts by its own definitions, so these hits are not compared. Cheetah refuses numbers whose check "
    "digits and domains whose top levels are wrong, and counts an address and the domain in it. The expressions of the other programs "
    "check no digits, and name few top levels. ripgrep counts one match for all of them at a place, and none that overlaps one before "
    "it. YARA-X counts a match of each of them at each byte where one can begin, so an address once for each letter of its name."
)
EMAIL_NOTE = (
    f"The expression is `{engines.EMAIL}`, the same for every program. As it can begin and end at one place only, their hits must be "
    "equal, as with words."
)


@dataclasses.dataclass(frozen=True)
class Search:
    """A search, and the other programs that search for the same, or for nearly the same."""

    task: Task
    others: Sequence[Engine]
    # Whether every program must have as many hits.
    is_same: bool = True
    note: str = ""


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
    """Raises BenchError if a program counts other hits than ours. bulk_extractor is not compared: it finds some twice."""
    for name, rounds in results.items():
        if name in (MEMORY, engines.BULK):
            continue
        # Each round by itself: one of an earlier run had other noise, in which an expression matches elsewhere.
        for ours, one in zip(results[OURS], rounds, strict=True):
            if one["hits"] not in (ours["hits"], None):
                raise BenchError(f"{what}: {name} has {one['hits']:.0f} hits instead of {ours['hits']:.0f}")


def figures_of(task: Task, results: dict[str, Any], note: str = "") -> list[Figure]:
    """Returns the figures beside the other programs and beside memory, and the counts of hits, with a note on these."""
    what, key = f"on one processor: {task.what}", f"search/engine-{task.key}"
    rates = {name: [one["rate"] for one in rounds] for name, rounds in results.items()}
    bounded = {name: rates[name] for name in (OURS, MEMORY)}
    others = {name: values for name, values in rates.items() if name != MEMORY}
    counted = {name: [one["hits"] for one in rounds if one.get("hits") is not None] for name, rounds in results.items()}
    hits = {name: values for name, values in counted.items() if values}
    return [
        Figure(key, what, "GB/s", OURS, others, "higher", BAR),
        Figure(f"{key}/memory", f"{what}, beside memory's bandwidth", "GB/s", OURS, bounded),
        Figure(f"{key}/hits", what, "hits", None, hits, note=note),
    ]


def measure_one(settings: Settings, search: Search, image: str) -> list[Figure]:
    """Measures one search beside the other programs."""
    task = search.task
    memory_bytes = MEMORY_BYTES_QUICK if settings.quick else MEMORY_BYTES
    turns: dict[str, Callable[[], Any]] = {
        OURS: lambda: of_seconds(task.size_bytes, task.run(image, ("--workers", "1"), pinned))
    }
    for engine in search.others:
        turns[engine.name] = functools.partial(beside, engine, task.size_bytes, image)
    turns[MEMORY] = lambda: {"rate": engines.memory_rate(memory_bytes, pinned) / 1e9}
    results = interleave(f"one processor: {task.what}", settings.rounds, turns)
    if search.is_same:
        check_hits(task.what, results)
    return figures_of(task, results, search.note)


def searches(scratch: Scratch, found: Evidence) -> list[Search]:
    """Returns the searches of an image."""
    few, many = runs.tasks(found, ENCODING)
    email = Task("email", "e-mail addresses", ("--regex", engines.EMAIL, *ENCODING), found.size_bytes)
    kinds = Task("kinds", "all kinds of data", ("--find", "all", *ENCODING), found.size_bytes)
    return [
        Search(few, engines.for_words(scratch, found.few)),
        Search(many, engines.for_words(scratch, found.many)),
        Search(email, engines.for_email(scratch), note=EMAIL_NOTE),
        Search(kinds, engines.for_kinds(scratch), is_same=False, note=KINDS_NOTE),
    ]


def measure(settings: Settings) -> list[Figure]:
    """Searches an image in memory for words, for e-mail addresses by one expression, and for all kinds of data."""
    with Scratch() as scratch:
        found = evidence.make(scratch, settings.size_bytes, with_text=True, encodings=("utf-8",))
        print(f"search: the engine on one processor, {iec(found.size_bytes)}, half of it text", flush=True)
        return while_time_lasts(
            functools.partial(measure_one, settings, search, found.path) for search in searches(scratch, found)
        )
