"""The models of disks beside their data sheets, behind a loop device as all parts use them, and what the program itself takes."""

import functools
from collections.abc import Iterator, Mapping

from bench.harness.cases import chosen
from bench.harness.rounds import interleave
from bench.settings import Settings
from cheetah.bench.figure import Figure
from lab import disk

KEY = "disk-models"
MEASURED, STATED = "measured (model)", "stated"
OFF, ALLOWED = "off (model)", "allowed"
NOTHING, FASTEST = "without delays (model)", "the fastest model"
# A read alone takes the program as much of a model's time at most.
OVERHEAD_BAR = 0.05
ALONE = "random reads of 4 KiB"
UNITS = {True: "/s", False: "MB/s"}


def is_rate_of_requests(what: str) -> bool:
    """Returns whether a job is judged by its requests, rather than its bytes."""
    return "random" in what


def one_round(model: str) -> dict[str, float]:
    """Measures every job of a model from a fresh start; returns MB/s, or requests a second."""
    found = {}
    with disk.served(model) as file, disk.as_device(file) as device:
        for what, options in disk.JOBS.items():
            mb_per_s, per_s = disk.measured(device, options)
            found[what] = per_s if is_rate_of_requests(what) else mb_per_s
    return found


def figures_of(model: str, rounds: list[Mapping[str, float]], stated: Mapping[str, disk.Allowed]) -> Iterator[Figure]:
    """Yields for each job how far a model is from the middle of what is allowed, as a share of what it may be off; and
    the rate itself."""
    for what in disk.JOBS:
        limit, values = stated[what], [one[what] for one in rounds]
        middle, reach = (limit.least + limit.most) / 2, (limit.most - limit.least) / 2
        off = [abs(value - middle) / reach for value in values]
        said = f"{model} (model): {what}"
        samples = {OFF: off, ALLOWED: [1.0] * len(off)}
        yield Figure(f"{KEY}/{model}/{what}/off", said, "of what is allowed", OFF, samples, "lower", 1.0)
        both = {MEASURED: values, STATED: [middle]}
        yield Figure(f"{KEY}/{model}/{what}/rate", said, UNITS[is_rate_of_requests(what)], None, both)


def overhead(results: Mapping[str, list[Mapping[str, float]]]) -> list[Figure]:
    """Returns the time of a read alone without any delay, beside that of the fastest model; and the rates without
    delays, which are the most that a model could show."""
    rounds = results[disk.ZERO]
    figures = [
        Figure(f"{KEY}/{disk.ZERO}/{what}/rate", f"{disk.ZERO} (model): {what}", UNITS[is_rate_of_requests(what)], None,
               {MEASURED: [one[what] for one in rounds]})
        for what in disk.JOBS
    ]  # fmt: skip
    if others := [name for name in results if name != disk.ZERO]:
        fastest = max(others, key=lambda name: results[name][0][ALONE])
        samples = {
            NOTHING: [1e6 / one[ALONE] for one in rounds],
            FASTEST: [1e6 / one[ALONE] for one in results[fastest]],
        }
        what = "a random read of 4 KiB, what the program itself takes"
        figures.append(Figure(f"{KEY}/overhead", what, "µs", NOTHING, samples, "lower", OVERHEAD_BAR))
    return figures


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures. A quick run has one model beside that without delays."""
    names = (*disk.MODELS[:1], disk.ZERO) if settings.quick else (*disk.MODELS, disk.ZERO)
    turns = {name: functools.partial(one_round, name) for name in chosen(names, settings)}
    results = interleave("models", settings.rounds, turns, tuple(disk.JOBS))
    figures = [
        figure
        for name in results
        if name != disk.ZERO
        for figure in figures_of(name, results[name], disk.allowed(name))
    ]
    return figures + (overhead(results) if disk.ZERO in results else [])
