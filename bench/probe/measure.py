"""Benchmarks `cheetah probe`: gaps of trains beside other tools, capacity and round trips of emulated paths, SO_TXTIME
in a kernel that has it, and the tables of the paper that it follows. See bench/README.md."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable

from bench.harness.rounds import interleave
from bench.probe import paths, seed, txtime
from bench.probe.senders import MMSG, OURS, PROGRAMS, SLEEP, SPIN, Sender, ours, serve_iperf3, tools
from bench.probe.stand import Stand, burners, stand
from bench.probe.tables import Plot, Table, save
from bench.probe.trains import TrainRequest, TrainResults, gap_errors_us, gaps_us, percentile
from bench.report.curves import Chart, distribution
from bench.settings import Settings
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.units import short

GAPS_US = (10, 50, 242)
PACKETS = 50
ALLOWED = "allowed"
P50_US_MAX, P99_US_MAX = 0.1, 5.0
# The bar: this share of the best peer's error, idle and busy.
PEER_SHARE = {"idle": 0.5, "every core busy": 0.1}
BACK_TO_BACK_SHARE = 0.75
# A sender that deviates more from the requested gap sends at another rate, so its errors do not count.
KEEPS_WITHIN = 0.25

NOTE = (
    "Gap errors are of all gaps of trains that count, 50 packets of 1514 bytes each, by the receiver's clock; ours are those "
    "that its self-check accepted. A tool whose median gap is off by more than a quarter of what was asked sends at another "
    "rate altogether and is no peer for that gap; the table has it all the same."
)


def _contenders() -> dict[str, Sender]:
    return {OURS: ours(), SLEEP: PROGRAMS[SLEEP], SPIN: PROGRAMS[SPIN], **tools()}


def _turn(send: Sender, at: Stand, asked: TrainRequest) -> dict[str, object]:
    """One measurement: its figures, and the trains."""
    try:
        sent = send(at, asked)
    except BenchError as error:
        # A tool that fails drops out of this figure only.
        print(f"    {error}", flush=True)
        return {"p99": None, "sent": TrainResults([])}
    errors = gap_errors_us(sent, asked.gap_ns)
    if not errors:
        return {"p99": None, "sent": sent}
    return {"p50": percentile(errors, 0.5), "p99": percentile(errors, 0.99), "sent": sent}


class Gaps:
    """The gap errors of all senders at one gap, idle or busy."""

    def __init__(self, at: Stand, gap_us: int, load: str, settings: Settings) -> None:
        self.what = f"gap of {gap_us} µs, {load}"
        self._id = f"probe/gap/{gap_us}us/{'idle' if load == 'idle' else 'busy'}"
        self._load, self._asked = load, TrainRequest(PACKETS, gap_us * 1000, 10 if settings.quick else 60)
        turns = {name: functools.partial(_turn, send, at, self._asked) for name, send in _contenders().items()}
        measured = interleave(self.what, settings.rounds, turns, ("p50", "p99"))
        self._ours: list[TrainResults] = [one["sent"] for one in measured[OURS]]
        counted = {name: [one["sent"] for one in rounds if one["sent"].arrived] for name, rounds in measured.items()}
        self.sent: dict[str, list[TrainResults]] = {name: rounds for name, rounds in counted.items() if rounds}

    def _samples(self, share: float) -> dict[str, list[float]]:
        return {
            name: [percentile(gap_errors_us(sent, self._asked.gap_ns), share) for sent in rounds]
            for name, rounds in self.sent.items()
        }

    def _keeps(self, name: str) -> bool:
        gaps = gaps_us(train for sent in self.sent[name] for train in sent.arrived)
        asked_us = self._asked.gap_ns / 1000
        return abs(percentile(gaps, 0.5) - asked_us) <= KEEPS_WITHIN * asked_us

    def figures(self) -> list[Figure]:
        """Compares with the bound, and with the best sender that keeps the gap."""
        accepted = {OURS: [100 * sent.accepted() for sent in self._ours]}
        figures = [Figure(f"{self._id}/accepted", f"{self.what}: trains accepted", "%", OURS, accepted)]
        if OURS not in self.sent:
            what = f"{self.what}: p99 of the error"
            return [*figures, Figure(f"{self._id}/p99", what, "µs", OURS, {}, "lower", 1.0, NOTE)]
        rounds = len(self.sent[OURS])
        for key, share, most in (("p50", 0.5, P50_US_MAX), ("p99", 0.99, P99_US_MAX)):
            samples = {OURS: self._samples(share)[OURS], ALLOWED: [most] * rounds}
            figures.append(
                Figure(f"{self._id}/{key}", f"{self.what}: {key} of the error", "µs", OURS, samples, "lower", 1.0, NOTE)
            )
        peers = {name: values for name, values in self._samples(0.99).items() if name == OURS or self._keeps(name)}
        figures.append(
            Figure(
                f"{self._id}/peers",
                f"{self.what}: p99 of the error beside the best that keeps it",
                "µs",
                OURS,
                peers,
                "lower",
                PEER_SHARE[self._load],
                NOTE,
            )
        )
        return figures

    def rows(self) -> list[list[str]]:
        """Returns the table's rows, one a sender."""
        rows = []
        for name, rounds in self.sent.items():
            sent = functools.reduce(TrainResults.__add__, rounds)
            errors, gaps = gap_errors_us(sent, self._asked.gap_ns), gaps_us(sent.arrived)
            said = f"{name} ({sent.backend})" if sent.backend else name
            accepted = f"{sent.accepted():.0%} of {sent.trains}" if sent.backend else ""
            cells = [short(percentile(gaps, 0.5)), *(short(percentile(errors, share)) for share in (0.5, 0.99, 1.0))]
            rows.append([self.what, said, *cells, accepted])
        return rows

    def chart(self) -> Chart:
        """Returns the distribution of all senders' errors."""
        curves = [
            distribution(name, [error for sent in rounds for error in gap_errors_us(sent, self._asked.gap_ns)])
            for name, rounds in self.sent.items()
        ]
        return Chart(f"Error of a {self.what}", "µs", curves)


def measure_gaps(at: Stand, settings: Settings) -> tuple[list[Figure], list[Table], list[Plot]]:
    """Measures idle, then with every core busy."""
    figures: list[Figure] = []
    table = Table(
        "Gaps of trains, by everybody", ["asked", "sender", "gap, median (µs)", "error p50", "p99", "most", "accepted"]
    )
    charts: dict[str, list[Chart]] = {}
    for load in PEER_SHARE:
        with contextlib.nullcontext() if load == "idle" else burners():
            for gap_us in GAPS_US:
                gaps = Gaps(at, gap_us, load, settings)
                figures += gaps.figures()
                table.rows += gaps.rows()
                charts.setdefault(load, []).append(gaps.chart())
    plots = [
        Plot(f"probe-gaps-{'idle' if load == 'idle' else 'busy'}", f"Gap errors, {load}", drawn)
        for load, drawn in charts.items()
    ]
    return figures, [table], plots


def measure_back_to_back(at: Stand, settings: Settings) -> list[Figure]:
    """Measures back-to-back sending: the smallest gap, hence the fastest link that a pair can measure."""
    asked = TrainRequest(PACKETS, 0, 10 if settings.quick else 60)

    def turn(send: Sender) -> Callable[[], dict[str, float]]:
        return lambda: {"gap": percentile(gaps_us(send(at, asked).arrived), 0.5)}

    # Back-to-back packets have no schedule to keep.
    senders = {OURS: ours("--gap-error-max", "1s"), MMSG: PROGRAMS[MMSG], SPIN: PROGRAMS[SPIN]}
    measured = interleave("back to back", settings.rounds, {name: turn(send) for name, send in senders.items()}, "gap")
    gaps = {name: [one["gap"] for one in rounds] for name, rounds in measured.items()}
    what = "back to back: median gap"
    mmsg = {name: gaps[name] for name in (OURS, MMSG)}
    return [
        Figure("probe/back-to-back", what, "µs", OURS, mmsg, "lower", BACK_TO_BACK_SHARE, NOTE),
        Figure(
            "probe/back-to-back-sendto",
            f"{what}, beside sendto",
            "µs",
            OURS,
            {name: gaps[name] for name in (OURS, SPIN)},
            "lower",
            None,
            NOTE,
        ),
    ]


def measure(settings: Settings) -> list[Figure]:
    """Runs all of it and returns the figures."""
    with stand() as at:
        print("probe: trains over a veth pair, the receiver's kernel being the judge", flush=True)
        serve_iperf3(at)
        figures, tables, plots = measure_gaps(at, settings)
        figures += measure_back_to_back(at, settings)
        tables += seed.tables(at, settings)
    for part in (seed.behind_links, paths.measure, txtime.measure):
        more = part(settings)
        figures, tables, plots = figures + more[0], tables + more[1], plots + more[2]
    save(tables, plots)
    return figures
