"""Judges each backend that sends: in which conditions it is the best. One that is best in none can go. The backends for which
this machine's kernel lacks a queue discipline (SO_TXTIME with FQ and ETF) are judged in the simulated machine."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Mapping

from bench.harness.rounds import interleave
from bench.probe.seed import CROSS, cross_traffic
from bench.probe.senders import Sender, ours, serve_iperf3
from bench.probe.stand import Stand, burners, stand
from bench.probe.tables import Table, save
from bench.probe.trains import TRAINS, TrainRequest, TrainResults, Which, gap_errors_us, gaps_us, percentile
from bench.settings import Settings
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.units import short

PART = "probe-backends"
BACKENDS: dict[str, Sender] = {name: ours("--backend", name) for name in ("xdp", "ring")}
PACKETS = 50
GAPS_US = (0, 10, 50, 242, 1000)
# Results that differ by less than this share are equal.
EQUAL_SHARE = 0.05
NOTE = (
    "p99 of the gap error in µs over all rounds; back to back, the median gap. The best of a condition by trains without host "
    "disturbance, and those within 5 % of it, are bold. A backend that is bold nowhere here, nor best in the simulated machine, wins nowhere."
)


@dataclasses.dataclass(frozen=True)
class Condition:
    """A gap under a load."""

    what: str
    gap_us: int
    load: Callable[[Stand], contextlib.AbstractContextManager[None]]


def conditions(settings: Settings) -> list[Condition]:
    """Returns all of them."""
    count = os.cpu_count() or 1
    loads: Mapping[str, Callable[[Stand], contextlib.AbstractContextManager[None]]] = {
        "idle": lambda _: burners(0),
        "two busy loops a processor": lambda _: burners(2 * count),
    }
    gaps = GAPS_US[:-1:2] if settings.quick else GAPS_US
    made = [Condition(f"{gap} µs, {load}", gap, enter) for load, enter in loads.items() for gap in gaps]
    return [*made, Condition("50 µs, cross traffic", 50, functools.partial(cross_traffic, level=CROSS[-1]))]


def value(sent: TrainResults, gap_us: int, which: Which = Which.UNDISTURBED) -> float | None:
    """Returns what is compared; None if no train counts."""
    counted = sent.only(which)
    if gap_us == 0:
        gaps = gaps_us(counted.arrived)
        return percentile(gaps, 0.5) if gaps else None
    errors = gap_errors_us(counted, gap_us * 1000)
    return percentile(errors, 0.99) if errors else None


def best(values: Mapping[str, float | None]) -> set[str]:
    """Returns the names of the smallest value and of those equal to it."""
    known = {name: one for name, one in values.items() if one is not None}
    least = min(known.values(), default=0.0)
    return {name for name, one in known.items() if one <= least * (1 + EQUAL_SHARE)}


def _cells(sent: TrainResults, gap_us: int, is_best: bool) -> list[str]:
    """Returns the value of all trains, of those without host disturbance, and of those accepted."""
    cells = []
    for which in Which:
        one = value(sent, gap_us, which)
        cell = sent.none(which) if one is None else f"{short(one)} ({sent.count(which)})"
        cells.append(f"**{cell}**" if is_best and which is Which.UNDISTURBED else cell)
    return cells


def _turn(send: Sender, at: Stand, asked: TrainRequest) -> dict[str, object]:
    try:
        sent = send(at, asked)
    except BenchError as error:
        print(f"    {error}", flush=True)
        sent = TrainResults([])
    return {"value": value(sent, asked.gap_ns // 1000), "sent": sent}


def measure(settings: Settings) -> list[Figure]:
    """Measures all backends in turns under each condition."""
    table = Table("Backends beside each other", ["condition", "backend", *TRAINS], note=NOTE)
    wins = dict.fromkeys(BACKENDS, 0)
    with stand() as at:
        serve_iperf3(at)
        for condition in conditions(settings):
            asked = TrainRequest(PACKETS, condition.gap_us * 1000, 5 if settings.quick else 40)
            with condition.load(at):
                turns = {name: functools.partial(_turn, send, at, asked) for name, send in BACKENDS.items()}
                measured = interleave(condition.what, settings.rounds, turns, "value")
            sums = {
                name: functools.reduce(TrainResults.__add__, [one["sent"] for one in rounds])
                for name, rounds in measured.items()
            }
            values = {name: value(sent, condition.gap_us) for name, sent in sums.items()}
            winners = best(values)
            for name in winners:
                wins[name] += 1
            table.rows += [
                [condition.what, name, *_cells(sent, condition.gap_us, name in winners)] for name, sent in sums.items()
            ]
    table.rows += [["conditions in which it is the best", name, "", str(count), ""] for name, count in wins.items()]
    save([table], [], PART)
    print("\n".join(table.lines()), flush=True)
    return []
