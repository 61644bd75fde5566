"""The small tables of the paper: what a reading of the clock resolves, how long sleeps take, and how close packets come.
Slides 6, 7 and 8 of Chang's presentation; and trains beside flows of D-ITG (slide 18 names it)."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
from collections.abc import Callable, Iterator, Sequence

from bench.probe.gaps import ERRORS, errors
from bench.probe.senders import PROGRAMS, SPIN, Sender, ours
from bench.probe.stand import PORT, RECEIVER, SENDER, SINK, Stand, burners, packets_program, stand
from bench.probe.tables import Table, save
from bench.probe.trains import TRAINS, SentTrain, TrainRequest, TrainResults, gaps_us, percentile, three
from bench.settings import Settings
from cheetah.bench.figure import Figure
from cheetah.bench.process import run
from cheetah.bench.units import short

PART = "probe-clocks"
SHARES = (0.01, 0.5, 0.99, 1.0)
SLEEPS_US = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
FIFO = ("chrt", "--fifo", "40")
FLOWS = (0, 1, 4, 16, 32)
FLOW_PACKETS_A_SECOND, FLOW_BYTES = 1000, 512
# Packets of a burst that are judged together: see `workshop/bench/packets/src/small.rs`; also the most packets of a train of ours.
BLOCK = 10_000
# IP and UDP or TCP headers, without a payload.
BURST_BYTES = {"tcp": 40, "udp": 28}


def _loads() -> dict[str, int]:
    """Returns the number of busy loops by the name of the load."""
    count = os.cpu_count() or 1
    return {"idle": 0, "one a processor": count, "two a processor": 2 * count}


def _spread(values: Sequence[float]) -> list[str]:
    return [short(percentile(values, share)) if values else "" for share in SHARES]


def clock_readings(settings: Settings) -> Table:
    """Slide 6: differences between consecutive readings of the clock."""
    table = Table(
        "Consecutive readings of the clock (difference, µs)",
        ["busy loops", "readings", "p1", "median", "p99", "largest"],
    )
    count = 100_000 if settings.quick else 1_000_000
    for load, loops in _loads().items():
        with burners(loops):
            lines = run([packets_program(), "clock", str(count)], 60).splitlines()
        deltas = [(int(delta) / 1000, int(times)) for delta, times in map(str.split, lines)]
        values = [delta for delta, times in deltas for _ in range(times)]
        table.rows.append([load, str(count), *_spread(values)])
    return table


def oversleeping(settings: Settings) -> Table:
    """Slide 7: by how much `clock_nanosleep` is late."""
    table = Table(
        "Oversleeping of clock_nanosleep (µs)", ["asked", "busy loops", "priority", "p1", "median", "p99", "largest"]
    )
    for load, loops in _loads().items():
        with burners(loops):
            for asked_us in SLEEPS_US[::3] if settings.quick else SLEEPS_US:
                count = max(20, min(1000, (100_000 if settings.quick else 2_000_000) // asked_us))
                for priority, prefix in (("ordinary", ()), ("SCHED_FIFO", FIFO)):
                    argv = [*prefix, packets_program(), "oversleep", str(asked_us * 1000), str(count)]
                    values = [int(line) / 1000 for line in run(argv, 120).split()]
                    table.rows.append([str(asked_us), load, priority, *_spread(values)])
    return table


def blocks(arrived: Sequence[int], host_ns: Sequence[int], count: int) -> TrainResults:
    """Returns a burst as trains of [`BLOCK`] packets, each with the host's longest stall; as one train if packets are missing, since it
    is not known which."""
    if len(arrived) != count:
        return TrainResults([SentTrain(sorted(arrived), host_ns=max(host_ns, default=None))] if arrived else [], 1)
    begins = range(0, count, BLOCK)
    known: Sequence[int | None] = host_ns if len(host_ns) == len(begins) else [None] * len(begins)
    ordered = sorted(arrived)
    trains = [SentTrain(ordered[begin : begin + BLOCK], host_ns=host) for begin, host in zip(begins, known)]
    return TrainResults(trains, len(trains))


def _burst(protocol: str, at: Stand, count: int) -> TrainResults:
    """Sends that many packets by raw sockets."""
    at.judge.collect(BURST_BYTES[protocol])
    printed = run(at.enter([packets_program(), "burst", protocol, f"{SINK}:{PORT}", SENDER, str(count)]), 60)
    host_ns = [int(line.removeprefix("host ")) for line in printed.splitlines()]
    return blocks(at.judge.collect(BURST_BYTES[protocol]), host_ns, count)


def _trains(backend: str, at: Stand, count: int) -> TrainResults:
    """Sends that many packets by `cheetah probe`, in its longest trains."""
    packets = min(count, BLOCK)
    return ours("--backend", backend)(at, TrainRequest(packets, 0, count // packets, 60))


def _smallest(sent: TrainResults) -> str:
    gaps = gaps_us(sent.arrived)
    return " / ".join([short(min(gaps)), *_spread(gaps)]) if gaps else ""


def smallest_gaps(at: Stand, settings: Settings) -> Table:
    """Slide 8: identical packets sent as fast as possible."""
    count = BLOCK if settings.quick else 10 * BLOCK
    table = Table(
        f"{count:,} identical packets sent as fast as possible (gap: smallest / p1 / median / p99 / largest, µs)",
        ["sender", "arrived", *TRAINS],
        note=f"A train is {BLOCK:,} packets; raw sockets send all of them without a pause, and have no self-check.",
    )
    senders: dict[str, Callable[[], TrainResults]] = {
        f"raw socket, {protocol.upper()}": functools.partial(_burst, protocol, at, count) for protocol in BURST_BYTES
    }
    senders |= {f"cheetah probe, {name}, UDP": functools.partial(_trains, name, at, count) for name in ("ring", "xdp")}
    for name, send in senders.items():
        sent = send()
        table.rows.append([name, str(sum(map(len, sent.arrived))), *three(sent, _smallest)])
    return table


@contextlib.contextmanager
def _flows(at: Stand, count: int) -> Iterator[None]:
    """That many UDP flows of D-ITG over the same interface."""
    if not count:
        yield
        return
    with at.scratch.child() as scratch:
        receiver = scratch.start("ITGRecv", at.receiver.command(["ITGRecv"]))
        receiver.wait_until(lambda: "Press" in receiver.printed(), "word that it receives")
        script = scratch.path("flows")
        with open(script, "w", encoding="ascii") as file:
            for number in range(count):
                file.write(
                    f"-a {RECEIVER} -rp {PORT + 100 + number} -T UDP -C {FLOW_PACKETS_A_SECOND} -c {FLOW_BYTES} -t 100000\n"
                )
        sender = scratch.start("ITGSend", at.enter(["ITGSend", script]))
        sender.wait_until(lambda: "Started sending" in sender.printed(), "word that it sends")
        yield


def beside_flows(at: Stand, settings: Settings) -> Table:
    """Trains beside a varying number of flows."""
    table = Table(
        f"Error of a gap of 50 µs beside flows of D-ITG, each {FLOW_PACKETS_A_SECOND} UDP packets a second (µs)",
        ["flows", "sender", *ERRORS],
    )
    if not shutil.which("ITGSend"):
        table.note = "Not measured: D-ITG is not installed (package d-itg)."
        return table
    senders: dict[str, Sender] = {"cheetah probe": ours(), SPIN: PROGRAMS[SPIN]}
    asked = TrainRequest(50, 50_000, 10 if settings.quick else 60)
    for count in FLOWS[::2] if settings.quick else FLOWS:
        with _flows(at, count):
            for name, send in senders.items():
                sent = TrainResults([])
                for _ in range(settings.rounds):
                    sent += send(at, asked)
                table.rows.append([str(count), name, *errors(sent, asked.gap_ns)])
    return table


def measure(settings: Settings) -> list[Figure]:
    """Makes the tables; they have no bars."""
    with stand() as at:
        tables = [
            clock_readings(settings),
            oversleeping(settings),
            smallest_gaps(at, settings),
            beside_flows(at, settings),
        ]
    save(tables, [], PART)
    for table in tables:
        print("\n".join(table.lines()), flush=True)
    return []
