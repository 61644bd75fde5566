"""The evaluation of the paper that the probe follows, table by table, on this machine: Mok et al., "Improving the
packet send-time accuracy in embedded devices" (PAM 2015), as Chang presented it (AIMS 2015). The receiver's kernel
stands in for the capture card; "sequential" is `cheetah probe --backend sequential`, which sleeps, then sends."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence

from bench.probe import capture
from bench.probe.senders import MMSG, PROGRAMS, SPIN, Sender, ours
from bench.probe.stand import PORT, RECEIVER, Stand, burners
from bench.probe.tables import Plot, Table
from bench.probe.trains import (
    TrainRequest,
    TrainResults,
    gap_errors_us,
    gap_of_rate_ns,
    gaps_us,
    percentile,
    rates_bits,
    stamp_errors_us,
)
from bench.settings import Settings
from cheetah.bench.figure import Figure
from cheetah.bench.units import short

PACKETS = 50
# No train is discarded here.
ALL = ("--gap-error-max", "1s")
# The paper gives no period; its own finding is that some hundreds of microseconds are enough.
ON_THE_FLY = "500us"
SEQUENTIAL = "sequential"
MODELS: dict[str, Sender] = {
    SEQUENTIAL: ours("--backend", "sequential", *ALL),
    "on-the-fly pre-dispatch": ours("--pre-dispatch", ON_THE_FLY, *ALL),
    "initial pre-dispatch": ours(*ALL),
}
GAPS_US = (0, 10, 20, 50, 100, 242, 1000)
CROSS = ("none", "100M", "500M", "as fast as TCP goes")
PERIODS = ("0us", "100us", "500us", "1ms")
RATES_MBIT = (5, 10, 20, 50, 100, 200, 500, 1000)
ACCEPTED_US_MAX = 5.0
PAIRS, PAIR_ROUNDS = 40, 40


def _trains(settings: Settings, gap_us: float) -> int:
    """Returns the number of trains that fit in a fraction of a second."""
    most_ns = 0.05e9 if settings.quick else 0.4e9
    return int(max(2, min(40, most_ns / max(1.0, PACKETS * gap_us * 1000))))


def _send(at: Stand, settings: Settings, sender: Sender, gap_ns: int, packets: int = PACKETS) -> TrainResults:
    return sender(at, TrainRequest(packets, gap_ns, _trains(settings, gap_ns / 1000)))


def _cells(values: Sequence[float], *shares: float) -> list[str]:
    return [short(percentile(values, share)) if values else "" for share in shares]


def at_idle(at: Stand, settings: Settings) -> Table:
    """Slide 17: gaps of trains at idle."""
    table = Table("Gap of trains at idle (median, µs)", ["asked", *MODELS])
    for gap_us in GAPS_US:
        sent = [_send(at, settings, sender, gap_us * 1000) for sender in MODELS.values()]
        table.rows.append([str(gap_us), *(_cells(gaps_us(one.arrived), 0.5)[0] for one in sent)])
    return table


@contextlib.contextmanager
def _cross_traffic(at: Stand, level: str) -> Iterator[None]:
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
        "Error of a gap of 50 µs with cross traffic over the same interface (iperf3, TCP; p50 / p99, µs)",
        ["cross traffic", *models],
    )
    for level in CROSS:
        with _cross_traffic(at, level):
            errors = [gap_errors_us(_send(at, settings, sender, 50_000), 50_000) for sender in models.values()]
        table.rows.append([level, *(" / ".join(_cells(one, 0.5, 0.99)) for one in errors)])
    return table


def periods(at: Stand, settings: Settings) -> Table:
    """Slide 19: how long ahead a packet has to be handed over."""
    table = Table(
        "Pre-dispatch period (error p50 / p99 in µs, share of trains within 5 µs)",
        ["period", "gap of 10 µs", "gap of 1000 µs"],
    )
    for period in PERIODS:
        row = [period]
        for gap_us in (10, 1000):
            sent = _send(at, settings, ours("--pre-dispatch", period, *ALL), gap_us * 1000)
            errors = gap_errors_us(sent, gap_us * 1000)
            good = [
                train
                for train in sent.arrived
                if max(gap_errors_us(TrainResults([train]), gap_us * 1000)) <= ACCEPTED_US_MAX
            ]
            row.append(f"{' / '.join(_cells(errors, 0.5, 0.99))}, {len(good) / max(1, len(sent.arrived)):.0%}")
        table.rows.append(row)
    return table


def pairs(at: Stand, settings: Settings) -> Table:
    """Slide 20: the gap of packet pairs, hence the highest measurable capacity."""
    senders = {
        SEQUENTIAL: MODELS[SEQUENTIAL],
        "on-the-fly pre-dispatch": MODELS["on-the-fly pre-dispatch"],
        "initial pre-dispatch": MODELS["initial pre-dispatch"],
        SPIN: PROGRAMS[SPIN],
        MMSG: PROGRAMS[MMSG],
    }
    table = Table(
        "Packet pairs, as close as they can be",
        ["sender", "gap, median (µs)", "p5", "p95", "highest measurable capacity (Mbit/s)"],
    )
    gaps: dict[str, list[float]] = {name: [] for name in senders}
    # Interleaved, so that all senders meet the same load.
    for _ in range(2 if settings.quick else PAIR_ROUNDS):
        for name, sender in senders.items():
            gaps[name] += gaps_us(sender(at, TrainRequest(2, 0, PAIRS)).arrived)
    for name, found in gaps.items():
        highest = 1514 * 8 / percentile(found, 0.5) if found else 0.0
        table.rows.append([name, *_cells(found, 0.5, 0.05, 0.95), short(highest)])
    return table


def stamps(at: Stand, settings: Settings) -> Table:
    """Slide 21: the sender's time of departure against the time on the wire."""
    senders = {**MODELS, SPIN: PROGRAMS[SPIN]}
    table = Table(
        "Error of the time at which a packet left, as reported by its sender (received − reported, µs)",
        ["sender", "median", "p1", "p99"],
    )
    for name, sender in senders.items():
        errors = stamp_errors_us(_send(at, settings, sender, 50_000))
        table.rows.append([name, *_cells(errors, 0.5, 0.01, 0.99)])
    return table


def rates(at: Stand, settings: Settings) -> Table:
    """Slides 24 and 25: trains of 50 packets at set rates."""
    senders = {**MODELS, SPIN: PROGRAMS[SPIN]}
    table = Table("Trains of 50 packets of 1514 bytes at set rates (actual rate, median, Mbit/s)", ["asked", *senders])
    for rate_mbit in RATES_MBIT:
        gap_ns = gap_of_rate_ns(rate_mbit * 1e6)
        row = [str(rate_mbit)]
        for sender in senders.values():
            actual = rates_bits(_send(at, settings, sender, gap_ns).arrived, 1500)
            row.append(f"{percentile(actual, 0.5) / 1e6:.2f}" if actual else "")
        table.rows.append(row)
    return table


def delay_at_50_mbit(at: Stand, settings: Settings) -> Table:
    """Slide 26: the delay between packets at 50 Mbit/s."""
    senders = {**MODELS, SPIN: PROGRAMS[SPIN]}
    table = Table(
        "Delay between packets at 50 Mbit/s, which is 242.2 µs in theory (µs)",
        ["sender", "p1", "p5", "median", "p95", "p99"],
    )
    for name, sender in senders.items():
        gaps = gaps_us(_send(at, settings, sender, gap_of_rate_ns(50e6)).arrived)
        table.rows.append([name, *(f"{percentile(gaps, share):.2f}" for share in (0.01, 0.05, 0.5, 0.95, 0.99))])
    return table


def by_load(at: Stand, settings: Settings) -> Table:
    """Slides 27 and 28: interference by processes that use the processors."""
    senders = {**MODELS, SPIN: PROGRAMS[SPIN]}
    count = os.cpu_count() or 1
    table = Table(
        "Interference by processor load: 50 Mbit/s asked (actual Mbit/s; gap error p50 / p99, µs)",
        ["processes that burn, a processor", *senders],
    )
    for burning in (0, max(1, count // 2), count, 2 * count):
        row = [f"{burning / count:g}"]
        with burners(burning):
            for sender in senders.values():
                sent = _send(at, settings, sender, gap_of_rate_ns(50e6))
                actual = percentile(rates_bits(sent.arrived, 1500), 0.5) / 1e6
                errors = _cells(gap_errors_us(sent, gap_of_rate_ns(50e6)), 0.5, 0.99)
                row.append(f"{actual:.2f}; {' / '.join(errors)}")
        table.rows.append(row)
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
