"""Gaps of trains beside other senders, idle and with busy processors."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence

from bench.harness.rounds import interleave
from bench.probe.senders import OURS, PROGRAMS, SEQUENTIAL, SLEEP, SPIN, Sender, ours, tools
from bench.probe.stand import Stand, burners
from bench.probe.tables import Plot, Table
from bench.probe.trains import (
    TRAINS,
    TrainRequest,
    TrainResults,
    Which,
    gap_errors_us,
    gaps_us,
    percentile,
    three,
)
from bench.report.curves import Chart, distribution
from bench.settings import Settings
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.units import short

GAPS_US = (10, 50, 242)
PACKETS = 50
ALLOWED = "allowed"
P50_US_MAX = 0.1
ACCEPTED_GAP_US, ACCEPTED_PERCENT_MIN = 242, 80.0
# The bar: this share of the best peer's error.
PEER_SHARE = 0.5
# A sender that deviates more from the requested gap sends at another rate, so its errors do not count.
KEEPS_WITHIN = 0.25
# The loads: busy loops a processor, and the bar of p99 in microseconds.
LOADS = {"idle": (0, 5.0), "two busy loops a processor": (2, 50.0)}
CHARTS = {"idle": "idle", "two busy loops a processor": "busy"}

NOTE = (
    "Gap errors are of all gaps of trains, 50 packets of 1514 bytes each, by the receiver's clock. Bars count all trains that the "
    "host of the virtual machine did not disturb: those whose sender did not stop for 20 µs or more without another "
    "thread having its processor; `sequential`, `sendto` and `sendmmsg` watch themselves in the same way. Accepted trains are those that our "
    "self-check accepted; other senders have none (–). Of other tools neither is known, so all "
    "their trains count. A train that did not arrive whole is in no figure; “178 of 180” trains says that two did not. A tool whose median gap is "
    "off by more than a quarter of what was asked sends at another rate altogether and is no peer for that gap; the table has it all the same."
)


def errors(sent: TrainResults, gap_ns: int) -> list[str]:
    """Returns p50 and p99 of the gap errors of all trains, of those without host disturbance, and of those accepted."""

    def judge(counted: TrainResults) -> str:
        found = gap_errors_us(counted, gap_ns)
        return " / ".join(short(percentile(found, share)) for share in (0.5, 0.99))

    return three(sent, judge)


ERRORS = [f"error p50 / p99, {head}" for head in TRAINS]
"""The heads of the columns of [`errors`]."""


def _contenders() -> dict[str, Sender]:
    return {OURS: ours(), **{name: PROGRAMS[name] for name in (SEQUENTIAL, SLEEP, SPIN)}, **tools()}


def _turn(send: Sender, at: Stand, asked: TrainRequest) -> dict[str, object]:
    """One measurement: its figures, and the trains."""
    try:
        sent = send(at, asked)
    except BenchError as error:
        # A tool that fails drops out of this figure only.
        print(f"    {error}", flush=True)
        return {"p99": None, "sent": TrainResults([])}
    found = gap_errors_us(sent.only(Which.UNDISTURBED), asked.gap_ns)
    if not found:
        return {"p99": None, "sent": sent}
    return {"p50": percentile(found, 0.5), "p99": percentile(found, 0.99), "sent": sent}


class Gaps:
    """The gap errors of all senders at one gap, idle or busy."""

    def __init__(self, at: Stand, gap_us: int, load: str, settings: Settings) -> None:
        self.what = f"gap of {gap_us} µs, {load}"
        self._id = f"probe/gap/{gap_us}us/{CHARTS[load]}"
        self._load, self._gap_us = load, gap_us
        self._asked = TrainRequest(PACKETS, gap_us * 1000, 10 if settings.quick else 60)
        turns = {name: functools.partial(_turn, send, at, self._asked) for name, send in _contenders().items()}
        measured = interleave(self.what, settings.rounds, turns, ("p50", "p99"))
        results = {name: [one["sent"] for one in rounds] for name, rounds in measured.items()}
        self._ours: list[TrainResults] = results[OURS]
        self.sent: dict[str, list[TrainResults]] = {
            name: [sent for sent in rounds if sent.sent] for name, rounds in results.items()
        }

    def _samples(self, share: float) -> dict[str, list[float]]:
        """Returns the errors of each sender in each round in which a train was not disturbed by the host."""
        found = {}
        for name, rounds in self.sent.items():
            counted = [gap_errors_us(sent.only(Which.UNDISTURBED), self._asked.gap_ns) for sent in rounds]
            if values := [percentile(one, share) for one in counted if one]:
                found[name] = values
        return found

    def _keeps(self, name: str) -> bool:
        gaps = gaps_us(train for sent in self.sent[name] for train in sent.arrived)
        asked_us = self._asked.gap_ns / 1000
        return abs(percentile(gaps, 0.5) - asked_us) <= KEEPS_WITHIN * asked_us

    def figures(self) -> list[Figure]:
        """Compares with the bound, and with the best sender that keeps the gap."""
        figures = [self._accepted()]
        for key, share, most in (("p50", 0.5, P50_US_MAX), ("p99", 0.99, LOADS[self._load][1])):
            values = self._samples(share).get(OURS, [])
            samples = {OURS: values, ALLOWED: [most] * len(values)} if values else {}
            what = f"{self.what}: {key} of the error"
            figures.append(Figure(f"{self._id}/{key}", what, "µs", OURS, samples, "lower", 1.0, NOTE))
        peers = {name: values for name, values in self._samples(0.99).items() if name == OURS or self._keeps(name)}
        what = f"{self.what}: p99 of the error beside the best that keeps it"
        figures.append(Figure(f"{self._id}/peers", what, "µs", OURS, peers, "lower", PEER_SHARE, NOTE))
        return figures

    def _accepted(self) -> Figure:
        samples = {OURS: [100 * sent.share(Which.ACCEPTED) for sent in self._ours]}
        has_bar = self._gap_us == ACCEPTED_GAP_US and self._load == "idle"
        if has_bar:
            samples[ALLOWED] = [ACCEPTED_PERCENT_MIN] * len(self._ours)
        what, bar = f"{self.what}: trains accepted", 1.0 if has_bar else None
        return Figure(f"{self._id}/accepted", what, "%", OURS, samples, "higher", bar, NOTE)

    def rows(self) -> list[list[str]]:
        """Returns the table's rows, one a sender."""
        rows = []
        for name, rounds in self.sent.items():
            if not rounds:
                continue
            sent = functools.reduce(TrainResults.__add__, rounds)
            said = f"{name} ({sent.backend})" if sent.backend else name
            rows.append(
                [self.what, said, short(percentile(gaps_us(sent.arrived), 0.5)), *errors(sent, self._asked.gap_ns)]
            )
        return rows

    def chart(self) -> Chart:
        """Returns the distribution of all senders' errors, all trains counted."""
        curves = [
            distribution(name, [error for sent in rounds for error in gap_errors_us(sent, self._asked.gap_ns)])
            for name, rounds in self.sent.items()
        ]
        return Chart(f"Error of a {self.what}", "µs", curves)


def measure_gaps(
    at: Stand, settings: Settings, gaps_us: Sequence[int] = GAPS_US
) -> tuple[list[Figure], list[Table], list[Plot]]:
    """Measures idle, then with busy processors."""
    figures: list[Figure] = []
    table = Table("Gaps of trains, by everybody (µs)", ["asked", "sender", "gap, median", *ERRORS])
    charts: dict[str, list[Chart]] = {}
    for load, (loops, _) in LOADS.items():
        with burners(loops * (os.cpu_count() or 1)):
            for gap_us in gaps_us:
                gaps = Gaps(at, gap_us, load, settings)
                figures += gaps.figures()
                table.rows += gaps.rows()
                charts.setdefault(load, []).append(gaps.chart())
    plots = [Plot(f"probe-gaps-{CHARTS[load]}", f"Gap errors, {load}", drawn) for load, drawn in charts.items()]
    return figures, [table], plots
