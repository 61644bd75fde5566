"""Trains at set rates and beside cross traffic: `cheetah probe` and a program that spins, in turns, with bars. The tables of the paper
in the part `probe` show the same once, by more senders."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from bench.harness.rounds import interleave
from bench.probe.gaps import ALLOWED, ERRORS, PEER_SHARE, errors
from bench.probe.seed import CROSS, RATES_MBIT, cross_traffic
from bench.probe.senders import OURS, PROGRAMS, SPIN, Sender, ours, serve_iperf3
from bench.probe.stand import Stand, stand
from bench.probe.tables import Table, save
from bench.probe.trains import (
    TRAINS,
    TrainRequest,
    TrainResults,
    Which,
    gap_errors_us,
    gap_of_rate_ns,
    percentile,
    rates_bits,
    three,
)
from bench.settings import Settings
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure

PART = "probe-rates"
SENDERS: dict[str, Sender] = {OURS: ours(), SPIN: PROGRAMS[SPIN]}
PACKETS, GAP_US, IP_BYTES = 50, 50, 1500
TRAINS_MIN, TRAINS_MAX, TRAINS_NS = 3, 40, 0.4e9
ERROR_PERCENT_MAX = 0.2
# Smaller errors count as this one, so that no bar depends on the last digit of both.
ERROR_PERCENT_MIN = 0.01
NOTE = (
    "Bars count trains that the host of the virtual machine did not disturb. A rate is that of a train of 50 packets of 1514 bytes from "
    "its first arrival to its last; its error is that of the median train, and counts as 0.01 % if it is smaller. Cross traffic is TCP "
    "(iperf3) through the same interface. A queue of its own for the probe's packets would change nothing here: the driver of veth pairs "
    "has no queue discipline (IFF_NO_QUEUE) and takes no lock for a queue (LLTX), so packets never wait for each other before it, and behind "
    "it all packets that a processor sent are in that processor's backlog, whichever queue they came from."
)


def trains_at(gap_ns: int, *, quick: bool) -> int:
    """Returns the number of trains that fit in a fraction of a second."""
    share = TRAINS_NS / (8 if quick else 1) / (PACKETS * gap_ns)
    return int(max(TRAINS_MIN, min(TRAINS_MAX, share)))


def rate_error_percent(sent: TrainResults, rate_mbit: float) -> float | None:
    """Returns the error of the median rate of the trains that the host did not disturb; None if there are none."""
    found = rates_bits(sent.only(Which.UNDISTURBED).arrived, IP_BYTES)
    return max(ERROR_PERCENT_MIN, 100 * abs(percentile(found, 0.5) / (rate_mbit * 1e6) - 1)) if found else None


def p99_us(sent: TrainResults) -> float | None:
    """Returns p99 of the gap error of the trains that the host did not disturb; None if there are none."""
    found = gap_errors_us(sent.only(Which.UNDISTURBED), GAP_US * 1000)
    return percentile(found, 0.99) if found else None


def _turn(
    send: Sender, at: Stand, asked: TrainRequest, judge: Callable[[TrainResults], float | None]
) -> dict[str, object]:
    try:
        sent = send(at, asked)
    except BenchError as error:
        print(f"    {error}", flush=True)
        sent = TrainResults([])
    return {"value": judge(sent), "sent": sent}


def _in_turns(
    what: str, at: Stand, settings: Settings, asked: TrainRequest, judge: Callable[[TrainResults], float | None]
) -> tuple[dict[str, list[float]], dict[str, TrainResults]]:
    """Measures both senders; returns their values, one a round, and all their trains."""
    turns = {name: functools.partial(_turn, send, at, asked, judge) for name, send in SENDERS.items()}
    measured = interleave(what, settings.rounds, turns, "value")
    values = {name: [one["value"] for one in rounds if one["value"] is not None] for name, rounds in measured.items()}
    trains = {
        name: functools.reduce(TrainResults.__add__, [one["sent"] for one in rounds])
        for name, rounds in measured.items()
    }
    return {name: found for name, found in values.items() if found}, trains


def rate_figures(rate_mbit: int, values: Mapping[str, list[float]]) -> list[Figure]:
    """Compares the error of a rate with the bound, and with the sender that spins."""
    key, what = f"{PART}/{rate_mbit}mbit", f"{rate_mbit} Mbit/s: error of the rate"
    mine = values.get(OURS, [])
    bound = {OURS: mine, ALLOWED: [ERROR_PERCENT_MAX] * len(mine)} if mine else {}
    return [
        Figure(f"{key}/error", what, "%", OURS, bound, "lower", 1.0, NOTE),
        Figure(f"{key}/peer", f"{what}, beside spinning", "%", OURS, dict(values), "lower", 1.0, NOTE),
    ]


def cross_figure(level: str, values: Mapping[str, list[float]]) -> Figure:
    """Compares p99 beside cross traffic with that of the sender that spins."""
    key, what = level.lower().replace(" ", "-"), f"gap of {GAP_US} µs, cross traffic {level}: p99 of the error"
    return Figure(f"{PART}/cross/{key}", what, "µs", OURS, dict(values), "lower", PEER_SHARE, NOTE)


def _actual(sent: TrainResults) -> list[str]:
    """Returns the median rate in Mbit/s of all trains, of those without host disturbance, and of those accepted."""
    return three(sent, lambda counted: f"{percentile(rates_bits(counted.arrived, IP_BYTES), 0.5) / 1e6:.2f}")


def measure(settings: Settings) -> list[Figure]:
    """Measures every rate, then every level of cross traffic."""
    figures: list[Figure] = []
    by_rate = Table("Set rates (actual rate, median of trains, Mbit/s)", ["asked", "sender", *TRAINS])
    by_level = Table(f"Error of a gap of {GAP_US} µs with cross traffic (µs)", ["cross traffic", "sender", *ERRORS])
    by_level.note = NOTE
    with stand() as at:
        serve_iperf3(at)
        for rate_mbit in RATES_MBIT[::3] if settings.quick else RATES_MBIT:
            gap_ns = gap_of_rate_ns(rate_mbit * 1e6)
            asked = TrainRequest(PACKETS, gap_ns, trains_at(gap_ns, quick=settings.quick))
            judge = functools.partial(rate_error_percent, rate_mbit=rate_mbit)
            values, trains = _in_turns(f"{rate_mbit} Mbit/s", at, settings, asked, judge)
            figures += rate_figures(rate_mbit, values)
            by_rate.rows += [[str(rate_mbit), name, *_actual(sent)] for name, sent in trains.items()]
        asked = TrainRequest(PACKETS, GAP_US * 1000, 10 if settings.quick else 40)
        for level in CROSS:
            with cross_traffic(at, level):
                values, trains = _in_turns(f"cross traffic {level}", at, settings, asked, p99_us)
            figures.append(cross_figure(level, values))
            by_level.rows += [[level, name, *errors(sent, asked.gap_ns)] for name, sent in trains.items()]
    save([by_rate, by_level], [], PART)
    for table in (by_rate, by_level):
        print("\n".join(table.lines()), flush=True)
    return figures
