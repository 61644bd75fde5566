"""Compares a capture tool's timestamps on the sending machine with the receiver's behind a slower link."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Sequence

from bench.probe.paths import enter
from bench.probe.stand import PORT, Judge, packets_program
from bench.probe.tables import Table
from bench.probe.trains import (
    TRAINS,
    SentTrain,
    TrainResults,
    gaps_us,
    percentile,
    rates_bits,
    read_trains,
    split,
    three,
)
from bench.scratch import Scratch
from bench.settings import Settings
from cheetah.bench.failure import BenchError
from cheetah.bench.process import run
from lab.link import Link
from lab.network import Lab

IP_BYTES, PACKETS = 1500, 50
RATES_MBIT = (100, 1000)
PCAP_NANOSECONDS = 0xA1B23C4D
HEADER, RECORD = struct.Struct("<IHHiIII"), struct.Struct("<IIII")


def read_pcap(content: bytes) -> list[int]:
    """Returns when each packet was captured, in nanoseconds of the wall clock, from a pcap file with nanoseconds in native
    byte order. Ignores a truncated last packet."""
    if len(content) < HEADER.size or HEADER.unpack_from(content)[0] != PCAP_NANOSECONDS:
        raise BenchError("tcpdump wrote no file with nanoseconds")
    times, at = [], HEADER.size
    while at + RECORD.size <= len(content):
        seconds, nanoseconds, length, _ = RECORD.unpack_from(content, at)
        at += RECORD.size + length
        if at <= len(content):
            times.append(seconds * 1_000_000_000 + nanoseconds)
    return times


def _measure(lab: Lab, scratch: Scratch, trains: int) -> dict[str, TrainResults]:
    """Returns trains as seen by tcpdump and by the receiver."""
    node = lab.nodes[0]
    captured = os.path.join(scratch.dir, "captured.pcap")
    judge = Judge(node.namespace, "eth0")
    scratch.at_exit(judge.stop)
    argv = [
        "tcpdump",
        "--interface=eth0",
        "--immediate-mode",
        "-n",
        "--packet-buffered",
        "--snapshot-length=64",
        "--time-stamp-precision=nano",
        "-Z",
        "root",
        "-w",
        captured,
        "udp",
        "dst",
        "port",
        str(PORT),
    ]
    tcpdump = scratch.start("tcpdump", enter(lab, argv))
    tcpdump.wait_until(lambda: "listening on" in tcpdump.printed(), "word that it listens")
    numbers = (IP_BYTES, PACKETS, 0, trains, 20_000)
    printed = run(enter(lab, [packets_program(), "mmsg", f"{node.address}:{PORT}", *map(str, numbers)]), 60)
    time.sleep(0.3)
    tcpdump.stop()
    due, _, host_ns = read_trains(printed)
    starts = [train[0] for train in due]
    with open(captured, "rb") as file:
        stamped = read_pcap(file.read())
    offset = time.time_ns() - time.monotonic_ns()
    seen = {
        "tcpdump at the sender": [stamp - offset for stamp in stamped],
        "the receiver": judge.collect(IP_BYTES),
    }
    return {by: whole(split(stamps, starts), host_ns) for by, stamps in seen.items()}


def whole(trains: Sequence[list[int]], host_ns: Sequence[int | None]) -> TrainResults:
    """Returns the trains that were stamped whole."""
    kept = [SentTrain(train, host_ns=host) for train, host in zip(trains, host_ns) if len(train) == PACKETS]
    return TrainResults(kept, len(trains))


def table(settings: Settings) -> Table:
    """Sends back-to-back trains over slower links."""
    made = Table(
        "A capture tool's timestamps: trains of 50 packets sent as fast as possible over a slower link",
        ["link (Mbit/s)", "median", "stamped by", *TRAINS],
        note="tcpdump's stamps are taken before a packet is on the wire: its rates are above the link's.",
    )
    medians: dict[str, Callable[[TrainResults], str]] = {
        "rate (Mbit/s)": lambda seen: f"{percentile(rates_bits(seen.arrived, IP_BYTES), 0.5) / 1e6:.1f}",
        "gap (µs)": lambda seen: f"{percentile(gaps_us(seen.arrived), 0.5):.2f}",
    }
    for rate_mbit in RATES_MBIT:
        link = Link(rate_mbit * 1_000_000, 500, spaced=True)
        with Scratch() as scratch, Lab(1, link=link) as lab:
            seen = _measure(lab, scratch, 5 if settings.quick else 20)
        for what, judge in medians.items():
            made.rows += [[str(rate_mbit), what, by, *three(trains, judge)] for by, trains in seen.items()]
    print(f"  {made.title}", flush=True)
    return made
