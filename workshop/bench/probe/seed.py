"""The evaluation of the paper that the probe follows, table by table, on this machine: Mok et al., "Improving the
packet send-time accuracy in embedded devices" (PAM 2015), as Chang presented it (AIMS 2015). The receiver's kernel
stands in for the capture card; "sequential" is the paper's naive sender: a raw socket of `workshop/bench/packets`, which sleeps, then sends."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence

from bench.probe import capture
from bench.probe.gaps import ERRORS, errors
from bench.probe.senders import MMSG, PROGRAMS, SEQUENTIAL, SPIN, Sender, ours
from bench.probe.stand import PORT, RECEIVER, Stand, burners
from bench.probe.tables import Plot, Table
from bench.probe.trains import (
    TRAINS,
    TrainRequest,
    TrainResults,
    gap_of_rate_ns,
    gaps_us,
    percentile,
    rates_bits,
    stamp_errors_us,
    three,
)
from bench.settings import Settings
from cheetah.bench.figure import Figure
from cheetah.bench.units import short

PACKETS = 50
# The paper gives no period; its own finding is that some hundreds of microseconds are enough.
ON_THE_FLY = "500us"
MODELS: dict[str, Sender] = {
    SEQUENTIAL: PROGRAMS[SEQUENTIAL],
    "on-the-fly pre-dispatch": ours("--pre-dispatch", ON_THE_FLY),
    "initial pre-dispatch": ours(),
}
GAPS_US = (0, 10, 20, 50, 100, 242, 1000)
CROSS = ("none", "100M", "500M", "as fast as TCP goes")
PERIODS = ("0us", "100us", "500us", "1ms")
RATES_MBIT = (5, 10, 20, 50, 100, 200, 500, 1000)
PAIRS, PAIR_ROUNDS = 40, 40


def _trains(settings: Settings, gap_us: float) -> int:
    """Returns the number of trains that fit in a fraction of a second."""
    most_ns = 0.05e9 if settings.quick else 0.4e9
    return int(max(2, min(40, most_ns / max(1.0, PACKETS * gap_us * 1000))))


def _send(at: Stand, settings: Settings, sender: Sender, gap_ns: int, packets: int = PACKETS) -> TrainResults:
    return sender(at, TrainRequest(packets, gap_ns, _trains(settings, gap_ns / 1000)))


def _cells(values: Sequence[float], *shares: float) -> list[str]:
    return [short(percentile(values, share)) if values else "" for share in shares]


def _rows(
    at: Stand,
    settings: Settings,
    asked: tuple[str, float],
    senders: Mapping[str, Sender],
    cells: Callable[[TrainResults], list[str]],
) -> list[list[str]]:
    """Measures each sender at a gap of that many nanoseconds; returns a row for each."""
    said, gap_ns = asked
    return [[said, name, *cells(_send(at, settings, sender, round(gap_ns)))] for name, sender in senders.items()]


def _three(judge: Callable[[TrainResults], str]) -> Callable[[TrainResults], list[str]]:
    return functools.partial(three, judge=judge)


def at_idle(at: Stand, settings: Settings) -> Table:
    """Slide 17: gaps of trains at idle."""
    table = Table("Gap of trains at idle (median, µs)", ["asked", "sender", *TRAINS])
    median = _three(lambda sent: _cells(gaps_us(sent.arrived), 0.5)[0])
    for gap_us in GAPS_US:
        table.rows += _rows(at, settings, (str(gap_us), gap_us * 1000), MODELS, median)
    return table


@contextlib.contextmanager
def cross_traffic(at: Stand, level: str) -> Iterator[None]:
    """TCP from the sender over the same interface."""
    if level == "none":
        yield
        return
    rate = level if level[0].isdigit() else "0"
    argv = ["iperf3", "--client", RECEIVER, "--port", str(PORT), "--time", "100", "--bitrate", rate, "--forceflush"]
    with at.scratch.child() as scratch:
        flow = scratch.start("iperf3", at.enter(argv))
        flow.wait_until(lambda: "connected" in flow.printed(), "word that it is connected")
        yield


def with_cross_traffic(at: Stand, settings: Settings) -> Table:
    """Slide 18: gaps of trains with cross traffic."""
    models = {**MODELS, SPIN: PROGRAMS[SPIN]}
    table = Table(
        "Error of a gap of 50 µs with cross traffic over the same interface (iperf3, TCP; µs)",
        ["cross traffic", "sender", *ERRORS],
    )
    for level in CROSS:
        with cross_traffic(at, level):
            table.rows += _rows(at, settings, (level, 50_000), models, lambda sent: errors(sent, 50_000))
    return table


def periods(at: Stand, settings: Settings) -> Table:
    """Slide 19: how long ahead a packet has to be handed over."""
    table = Table("Pre-dispatch period (µs)", ["period", "gap", *ERRORS])
    for period in PERIODS:
        for gap_us in (10, 1000):
            sent = _send(at, settings, ours("--pre-dispatch", period), gap_us * 1000)
            table.rows.append([period, str(gap_us), *errors(sent, gap_us * 1000)])
    return table


def pairs(at: Stand, settings: Settings) -> Table:
    """Slide 20: the gap of packet pairs, hence the highest measurable capacity."""
    senders = {
        **MODELS,
        SPIN: PROGRAMS[SPIN],
        MMSG: PROGRAMS[MMSG],
    }
    table = Table(
        "Packet pairs, as close as they can be (gap p5 / median / p95, µs; highest measurable capacity, Mbit/s)",
        ["sender", *TRAINS],
    )
    sent = {name: TrainResults([]) for name in senders}
    # Interleaved, so that all senders meet the same load.
    for _ in range(2 if settings.quick else PAIR_ROUNDS):
        for name, sender in senders.items():
            sent[name] += sender(at, TrainRequest(2, 0, PAIRS))

    def cell(counted: TrainResults) -> str:
        gaps = gaps_us(counted.arrived)
        return f"{' / '.join(_cells(gaps, 0.05, 0.5, 0.95))}; {short(1514 * 8 / percentile(gaps, 0.5))}"

    table.rows = [[name, *_three(cell)(found)] for name, found in sent.items()]
    return table


def stamps(at: Stand, settings: Settings) -> Table:
    """Slide 21: the sender's time of departure against the time on the wire."""
    senders = {**MODELS, SPIN: PROGRAMS[SPIN]}
    table = Table(
        "Error of the time at which a packet left, as reported by its sender (received − reported; median / p1 / p99, µs)",
        ["gap", "sender", *TRAINS],
    )
    cells = _three(lambda sent: " / ".join(_cells(stamp_errors_us(sent), 0.5, 0.01, 0.99)))
    table.rows = _rows(at, settings, ("50 µs", 50_000), senders, cells)
    return table


def _rate_mbit(counted: TrainResults) -> str:
    return f"{percentile(rates_bits(counted.arrived, 1500), 0.5) / 1e6:.2f}"


def rates(at: Stand, settings: Settings) -> Table:
    """Slides 24 and 25: trains of 50 packets at set rates."""
    senders = {**MODELS, SPIN: PROGRAMS[SPIN]}
    table = Table(
        "Trains of 50 packets of 1514 bytes at set rates (actual rate, median, Mbit/s)", ["asked", "sender", *TRAINS]
    )
    actual = _three(_rate_mbit)
    for rate_mbit in RATES_MBIT:
        table.rows += _rows(at, settings, (str(rate_mbit), gap_of_rate_ns(rate_mbit * 1e6)), senders, actual)
    return table


def delay_at_50_mbit(at: Stand, settings: Settings) -> Table:
    """Slide 26: the delay between packets at 50 Mbit/s."""
    senders = {**MODELS, SPIN: PROGRAMS[SPIN]}
    table = Table(
        "Delay between packets at 50 Mbit/s, which is 242.2 µs in theory (p1 / p5 / median / p95 / p99, µs)",
        ["rate", "sender", *TRAINS],
    )
    shares = (0.01, 0.05, 0.5, 0.95, 0.99)
    cells = _three(lambda sent: " / ".join(f"{percentile(gaps_us(sent.arrived), share):.2f}" for share in shares))
    table.rows = _rows(at, settings, ("50 Mbit/s", gap_of_rate_ns(50e6)), senders, cells)
    return table


def by_load(at: Stand, settings: Settings) -> Table:
    """Slides 27 and 28: interference by processes that use the processors."""
    senders = {**MODELS, SPIN: PROGRAMS[SPIN]}
    count = os.cpu_count() or 1
    table = Table(
        "Interference by processor load: 50 Mbit/s asked (actual rate, median, Mbit/s; gap error, µs)",
        ["processes that burn, a processor", "sender", *(f"actual rate, {head}" for head in TRAINS), *ERRORS],
    )
    gap_ns = gap_of_rate_ns(50e6)
    actual = _three(_rate_mbit)

    def cells(sent: TrainResults) -> list[str]:
        return [*actual(sent), *errors(sent, gap_ns)]

    for burning in (0, max(1, count // 2), count, 2 * count):
        with burners(burning):
            table.rows += _rows(at, settings, (f"{burning / count:g}", gap_ns), senders, cells)
    return table


def tables(at: Stand, settings: Settings) -> list[Table]:
    """Makes the tables that need only a wire."""
    made = []
    for make in (at_idle, with_cross_traffic, periods, pairs, stamps, rates, delay_at_50_mbit, by_load):
        made.append(make(at, settings))
        print(f"  {made[-1].title}", flush=True)
    return made


def behind_links(settings: Settings) -> tuple[list[Figure], list[Table], list[Plot]]:
    """Slides 29 and 30: tcpdump on the sender's machine against the output of a link."""
    return [], [capture.table(settings)], []
