"""A sealed drive whose key is lent to its nodes, beside the same drive not sealed; both over nodes of a room."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

from bench.harness.figures import Metric, from_rounds
from bench.harness.rounds import interleave, while_time_lasts
from bench.scratch import Scratch
from bench.search import evidence, runs
from bench.search.evidence import Evidence
from bench.search.links import NODES, RATE, shared_lab
from bench.search.runs import AT_NODES, NEAR_SHARE_MIN, NEAR_SHARE_SEALED_MIN, Task
from bench.settings import Settings
from bench.tools import cheetah, room
from cheetah.bench.figure import Figure
from cheetah.bench.units import MIB, iec
from cheetah.bench.verbs import Enter

SEALED, PLAIN = "sealed, key lent", "not sealed"
BAR = 0.6
LENT = ("--lend-key", "all")


@contextlib.contextmanager
def on_loopback() -> Iterator[tuple[list[tuple[str, Enter]], Enter]]:
    """Yields the nodes' addresses on this machine, with what starts them, and what starts the examiner's commands."""
    yield [("127.0.0.1", list)] * NODES, list


@contextlib.contextmanager
def behind_one_link() -> Iterator[tuple[list[tuple[str, Enter]], Enter]]:
    """Yields the same in a lab whose nodes share the examiner's link."""
    with shared_lab() as lab:
        yield [(at.address, at.command) for at in lab.nodes], lab.examiner.command


def measure_at(settings: Settings, found: Evidence, key: str, where: str) -> list[Figure]:
    """Measures at nodes on this machine, or behind one link."""
    with Scratch() as scratch, on_loopback() if key == "loopback" else behind_one_link() as (places, examiner):
        members = room.Room.new(scratch)
        enter = room.acting(members.credential("examiner", "desk"), examiner)
        # Both drives, and the tags of the sealed one.
        share_bytes = 2 * (found.size_bytes // NODES + 2 * MIB)
        nodes = []
        for number, (address, at) in enumerate(places):
            member = members.credential("trusted-node", f"pc{number}")
            port = 0 if address == "127.0.0.1" else 10809
            nodes.append(room.node(scratch, share_bytes, member, address, at, port, ("--scan", "1"))["nbd"])
        drives = {}
        for name, option in ((SEALED, "--seal"), (PLAIN, "--no-seal")):
            drives[name] = scratch.path("drive") + ".drive"
            argv = ["create", drives[name], "--nodes", ",".join(nodes), "--layout", "stripe", option]
            cheetah.call([*argv, "--from", found.path], enter)
        print(f"search: sealed, {where}, {iec(found.size_bytes)}", flush=True)
        compare = functools.partial(compare_searches, settings, drives, enter, (key, where))
        return while_time_lasts(functools.partial(compare, task) for task in runs.tasks(found))


def compare_searches(
    settings: Settings, drives: dict[str, str], enter: Enter, place: tuple[str, str], task: Task
) -> list[Figure]:
    """Measures a search of the sealed drive and of the other one, at a place with this key and this name."""
    key, where = place
    what = f"a sealed drive with a lent key, {where}: {task.what}"
    near = {SEALED: ((*AT_NODES, *LENT), NEAR_SHARE_SEALED_MIN), PLAIN: (AT_NODES, NEAR_SHARE_MIN)}
    turns = {
        name: functools.partial(task.run, drives[name], more, enter, share_min)
        for name, (more, share_min) in near.items()
    }
    results = interleave(what, settings.rounds, turns)
    metric = Metric("rate", "", "MiB/s", "higher", BAR)
    return from_rounds(f"search/sealed-{key}-{task.key}", what, SEALED, (metric,), results)


def measure(settings: Settings) -> list[Figure]:
    """Searches the drives on this machine, where the processor decides, and behind one link, which carries the units that lie on
    two nodes."""
    with Scratch() as scratch:
        found = evidence.make(scratch, settings.size_bytes)
        places = (("loopback", "nodes on this machine"), ("shared", f"nodes behind one shared link of {RATE}"))
        return while_time_lasts(functools.partial(measure_at, settings, found, *place) for place in places)
