"""A drive over four nodes behind links, searched and verified at the nodes and by the examiner."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

from bench.harness.figures import Metric, from_rounds
from bench.harness.rounds import interleave, while_time_lasts
from bench.scratch import Scratch
from bench.search import runs
from bench.search.evidence import Evidence
from bench.search.runs import AT_NODES, NEAR_SHARE_MIN, Task
from bench.settings import Settings
from bench.tools import cheetah
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.units import MIB, iec
from lab.link import Link, bits_per_s
from lab.network import Lab

NODES = 4
RATE = "1gbit"
NEAR, HERE = "at the nodes", "at the examiner"
SHARED_BARS = {"few": 10.0, "many": 4.0}
OWN_BAR = 1.0
VERIFY_BAR = 8.0
# What may arrive at the examiner, as a share of the drive. A search adds its hits.
SEARCH_SHARE_MAX, VERIFY_SHARE_MAX = 0.02, 0.001


def shared_lab(nodes: int = NODES, rate: str = RATE) -> Lab:
    """Returns a lab whose nodes share the examiner's link."""
    return Lab(nodes, rate=None, examiner_link=Link(bits_per_s(rate)))


def drive_over(scratch: Scratch, lab: Lab, evidence: Evidence) -> str:
    """Loads the image into a striped drive over nodes that each lend a thread; returns the path of its file."""
    share_bytes = evidence.size_bytes // len(lab.nodes) + MIB
    lent = ("--scan", "1")
    nodes = [cheetah.node(scratch, share_bytes, at.address, at.command, lent) for at in lab.nodes]
    return cheetah.create(scratch, nodes, image=evidence.path, enter=lab.examiner.command)


def counted(lab: Lab, measure: Callable[[], Any]) -> Any:
    """Adds the bytes that the examiner received meanwhile."""
    before = runs.received_bytes(lab.examiner.command)
    measured = measure()
    return {**measured, "received": runs.received_bytes(lab.examiner.command) - before}


def searched(lab: Lab, task: Task, drive: str, near: bool) -> Any:
    """Searches the drive at the nodes, or has the examiner read it."""
    more, share_min = (AT_NODES, NEAR_SHARE_MIN) if near else ((), 0.0)
    return counted(lab, lambda: task.run(drive, more, lab.examiner.command, share_min))


def verified(lab: Lab, drive: str, size_bytes: int, near: bool) -> Any:
    """Verifies the drive at the nodes, or has the examiner read it; returns the rate (MiB/s) and the hash."""
    more, share_min = (AT_NODES, NEAR_SHARE_MIN) if near else ((), 0.0)

    def measure() -> Any:
        begun = time.perf_counter()
        answer = cheetah.call(["verify", drive, "--no-log", "--hash", "blake3", *more], lab.examiner.command)
        seconds = time.perf_counter() - begun
        if not answer["ok"] or answer["ok_bytes"] != size_bytes:
            raise BenchError(f"verify {drive}: {answer['problems'] or answer['ok_bytes']}")
        runs.check_share(f"verify {drive}", answer, size_bytes, share_min)
        return {"rate": size_bytes / MIB / seconds, "blake3": answer["hashes"]["blake3"]}

    return counted(lab, measure)


def received_figure(key: str, what: str, results: Any, size_bytes: int, share_max: float) -> Figure:
    """Returns the figure of the bytes that arrived at the examiner, beside the allowed amount."""
    rounds = results[NEAR]
    allowed = [(share_max * size_bytes + one.get("table_bytes", 0)) / MIB for one in rounds]
    name = f"{100 * share_max:g} % of the drive" + (", and the hits" if "table_bytes" in rounds[0] else "")
    samples = {NEAR: [one["received"] / MIB for one in rounds], name: allowed}
    return Figure(f"{key}/received", f"{what}: bytes that arrive at the examiner", "MiB", NEAR, samples, "lower", 1.0)


def compare_searches(
    settings: Settings, lab: Lab, drive: str, task: Task, where: tuple[str, str], bar: float, share_max: float | None
) -> list[Figure]:
    """Measures a search at the nodes beside the same at the examiner; and what arrives there, beside that share of the
    drive."""
    key, name = where
    what = f"{name}: {task.what}"
    turns = {side: functools.partial(searched, lab, task, drive, near) for side, near in ((NEAR, True), (HERE, False))}
    results = interleave(what, settings.rounds, turns)
    key = f"search/{key}-{task.key}"
    figures = from_rounds(key, what, NEAR, (Metric("rate", "", "MiB/s", "higher", bar),), results)
    if share_max is not None:
        figures.append(received_figure(key, what, results, task.size_bytes, share_max))
    return figures


def searches(
    settings: Settings,
    lab: Lab,
    drive: str,
    tasks: Sequence[Task],
    where: tuple[str, str],
    bars: dict[str, float],
    share_max: float | None = None,
) -> list[Callable[[], list[Figure]]]:
    """Returns the measurements of these searches, at a place with this key and this name."""
    compare = functools.partial(compare_searches, settings, lab, drive)
    return [functools.partial(compare, task, where, bars[task.key], share_max) for task in tasks]


def compare_verifications(settings: Settings, lab: Lab, drive: str, size_bytes: int, where: str) -> list[Figure]:
    """Measures a verification at the nodes beside that at the examiner, and what arrives there."""
    what = f"{where}: verify"
    turns = {
        name: functools.partial(verified, lab, drive, size_bytes, near) for name, near in ((NEAR, True), (HERE, False))
    }
    results = interleave(what, settings.rounds, turns)
    if len({one["blake3"] for rounds in results.values() for one in rounds}) != 1:
        raise BenchError("verify: the hash made at the nodes is not that of the examiner")
    metric = Metric("rate", "", "MiB/s", "higher", VERIFY_BAR)
    figures = from_rounds("search/shared-verify", what, NEAR, (metric,), results)
    figures.append(received_figure("search/shared-verify", what, results, size_bytes, VERIFY_SHARE_MAX))
    return figures


def measure_shared(settings: Settings, evidence: Evidence) -> list[Figure]:
    """Searches and verifies a drive over nodes behind one link of the examiner."""
    where = f"{NODES} nodes behind one shared link of {RATE}"
    with Scratch() as scratch, shared_lab() as lab:
        drive = drive_over(scratch, lab, evidence)
        print(f"search: {where}, a drive of {iec(evidence.size_bytes)}", flush=True)
        tasks = runs.tasks(evidence)
        searching = searches(settings, lab, drive, tasks, ("shared", where), SHARED_BARS, SEARCH_SHARE_MAX)
        verifying = functools.partial(compare_verifications, settings, lab, drive, evidence.size_bytes, where)
        return while_time_lasts([*searching, verifying])


def measure_own(settings: Settings, evidence: Evidence) -> list[Figure]:
    """Searches a drive over nodes that have a link each."""
    where = f"{NODES} nodes behind links of {RATE} each"
    with Scratch() as scratch, Lab(NODES, RATE) as lab:
        drive = drive_over(scratch, lab, evidence)
        print(f"search: {where}, a drive of {iec(evidence.size_bytes)}", flush=True)
        bars = dict.fromkeys(SHARED_BARS, OWN_BAR)
        return while_time_lasts(searches(settings, lab, drive, runs.tasks(evidence), ("own", where), bars))
