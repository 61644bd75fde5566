"""A scaled model: small machines as control groups, so that four nodes fit on the processors of one machine."""

from __future__ import annotations

import functools
from typing import Any

from bench.harness.rounds import interleave, while_time_lasts
from bench.scratch import Scratch
from bench.search import evidence, runs
from bench.search.links import NODES
from bench.search.runs import AT_NODES, NEAR_SHARE_MIN, Task
from bench.settings import Settings
from bench.tools import cheetah, control_group
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.units import MIB, iec
from cheetah.bench.verbs import Enter
from lab.link import Link, bits_per_s
from lab.network import Lab

SHARE, RATE = 0.4, "400mbit"
BAR = 0.8
FOUR, ONE = f"{NODES} nodes", f"{NODES} × one node"
NOTE = (
    f"The scaled model: the examiner and {NODES} nodes are control groups with {100 * SHARE:g} % of a processor each, behind links of {RATE}; "
    "a model, not machines."
)


def within(group: Enter, enter: Enter) -> Enter:
    """Returns what runs a command in a group and in a namespace."""
    return lambda argv: group(enter(argv))


def searched(task: Task, drive: str, enter: Enter, times: int) -> dict[str, float]:
    """Returns the rate of a search at the nodes, multiplied."""
    return {"rate": times * task.run(drive, AT_NODES, enter, NEAR_SHARE_MIN)["rate"]}


def figure(key: str, what: str, results: dict[str, Any]) -> Figure:
    """Returns the rate of four nodes beside four times that of one."""
    samples = {name: [one["rate"] for one in rounds] for name, rounds in results.items()}
    return Figure(f"search/model-{key}", f"scaled model: {what}", "MiB/s", FOUR, samples, "higher", BAR, NOTE)


def compare(settings: Settings, task: Task, drives: dict[str, str], enter: Enter) -> list[Figure]:
    """Measures a search of the drive over four machines and of that over one."""
    turns = {
        name: functools.partial(searched, task, drive, enter, NODES if name == ONE else 1)
        for name, drive in drives.items()
    }
    return [figure(task.key, task.what, interleave(f"scaled model: {task.what}", settings.rounds, turns))]


def measure(settings: Settings) -> list[Figure]:
    """Searches a drive over four small machines, and one over a single one of them."""
    size_bytes = 2 * settings.size_bytes
    with Scratch() as scratch:
        try:
            groups = [scratch.enter(control_group.with_processor_share(scratch, SHARE)) for _ in range(NODES + 1)]
        except BenchError as error:
            print(f"search: no scaled model: {error}", flush=True)
            return [
                Figure(
                    f"search/model-{key}", "scaled model", "MiB/s", FOUR, {}, "higher", BAR, f"Not measured: {error}."
                )
                for key in ("few", "many")
            ]
        lab = scratch.enter(Lab(NODES, RATE, examiner_link=Link(bits_per_s(RATE))))
        found = evidence.make(scratch, size_bytes)
        shares = [size_bytes // NODES + MIB + (size_bytes if number == 0 else 0) for number in range(NODES)]
        nodes = [
            cheetah.node(scratch, share, at.address, within(group, at.command), ("--scan", "1"))
            for share, at, group in zip(shares, lab.nodes, groups, strict=False)
        ]
        # Loading is not measured, so that it has all processors.
        # That of one node comes first: then all have as much memory left, and equal shares of the other.
        one = cheetah.create(scratch, nodes[:1], image=found.path, enter=lab.examiner.command)
        drives = {FOUR: cheetah.create(scratch, nodes, image=found.path, enter=lab.examiner.command), ONE: one}
        print(f"search: scaled model, a drive of {iec(size_bytes)}", flush=True)
        enter = within(groups[NODES], lab.examiner.command)
        return while_time_lasts(functools.partial(compare, settings, task, drives, enter) for task in runs.tasks(found))
