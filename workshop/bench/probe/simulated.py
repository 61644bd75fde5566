"""Trains in a simulated machine: its clock counts instructions (QEMU with `-icount`), and its packets are stamped by that
clock where they leave it (`filter-dump`). No host disturbs it, so that what remains is the work of its own kernel and
programs. It has one processor. Times are simulated, and stamps have a resolution of 1 µs."""

from __future__ import annotations

import dataclasses
import os
import shutil
import struct

from bench.probe import guest
from bench.probe.stand import packets_program
from bench.probe.tables import Table, save
from bench.probe.trains import percentile
from bench.scratch import Scratch
from bench.settings import Settings
from bench.tools import cheetah
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.process import run
from cheetah.bench.units import short

PART = "probe-simulated"
ADDRESS, GATEWAY_MAC, SINK = "10.0.2.15", "52:55:0a:00:02:02", "10.0.2.9"
INTERFACE = "eth0"
FIRST_PORT, CROSS_PORT = 41_000, 40_500
PACKETS, GAP_US, IP_BYTES = 30, 242, 1000
P99_US_MAX, ALLOWED, OURS = {"idle": 5.0, "two busy loops": 50.0}, "allowed", "best of cheetah probe"
PEER_SHARE = 0.5
# The resolution of the stamps.
STAMP_US = 1.0
# A simulated second takes up to ten, or many more beside other work.
BOOT_LIMIT_S = 4 * 3600.0
# A pause between packets longer than this ends a train. The senders pause for 20 ms between trains, and a thread that waits for
# two busy loops is kept from its processor for two ticks of 4 ms.
TRAIN_ENDS_US = 15_000
PCAP = struct.Struct("<IHHiIII")
RECORD = struct.Struct("<IIII")
NANOSECONDS, MICROSECONDS = 0xA1B23C4D, 0xA1B2C3D4
UDP, DESTINATION_PORT = 17, slice(36, 38)
LOADS = ("idle", "one busy loop", "two busy loops", "cross traffic")
# The queue discipline that a sender needs, and its command; `$PORT` and the numbers follow.
SENDERS = {
    "txtime-fq": ("fq", "ours txtime"),
    "txtime-etf": ("etf clockid CLOCK_TAI delta 500000", "ours txtime"),
    "xdp": ("pfifo", "ours xdp"),
    "ring": ("pfifo", "ours ring"),
    "sequential": ("pfifo", "theirs raw"),
    "spin + sendto": ("pfifo", "theirs spin"),
    "sendto + nanosleep": ("pfifo", "theirs sleep"),
}
PEERS = ("sequential", "spin + sendto", "sendto + nanosleep")
NOTE = (
    "Simulated: QEMU counts one nanosecond an instruction, so neither the host's load nor its hypervisor has a part in these figures, and "
    "none of them is that of a real machine. Stamps have a resolution of 1 µs: what is below counts as 1 µs in the comparisons. Debian's "
    "kernel 6.12, one processor, idle=poll, e1000. ETF drops packets that carry no time, "
    "hence has no row with cross traffic."
)
MACHINE = guest.Machine(
    options=("-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off", "-smp", "1", "-cpu", "max"),
    kernel="idle=poll",
    modules=("sch_fq", "sch_etf", "e1000"),
    limit_s=BOOT_LIMIT_S,
)
SCRIPT = """#!/bin/sh
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
for module in sch_fq sch_etf e1000; do insmod /modules/$module.ko; done
/bin/ip link set lo up; /bin/ip link set eth0 up
# The adapter reports its link after two seconds; packets sent before are lost.
for try in $(seq 100); do grep -q 1 /sys/class/net/eth0/carrier && break; sleep 0.1; done
/bin/ip address add ADDRESS/24 dev eth0
/bin/ip neigh replace SINK lladdr MAC dev eth0
ours() {
    cheetah --json probe SINK --send train:PACKETS@GAPus --port $PORT --packet-bytes BYTES --gap-error-max 1s \\
        --repeat TRAINS --again 0 --interval 20ms --rate-max 1000000 --packets-max 1000000 --backend $1 2>&1
}
theirs() { bench-packets $1 SINK:$PORT BYTES PACKETS GAP000 TRAINS 20000 2>&1; }
turn() {
    PORT=$1; qdisc=$2; shift 2
    /bin/tc qdisc replace dev eth0 root $qdisc || echo "@$PORT problem tc refuses $qdisc"
    "$@" >/tmp/sent || sed "s/^/@$PORT problem /" /tmp/sent
}
burn() { while :; do :; done; }
TURNS
poweroff -f
"""


@dataclasses.dataclass(frozen=True)
class Turn:
    """One sender under one load; the port of its packets tells them apart."""

    port: int
    load: str
    sender: str


def turns() -> list[Turn]:
    """Returns all of them, in their order."""
    pairs = [
        (load, sender) for load in LOADS for sender in SENDERS if (load, sender) != ("cross traffic", "txtime-etf")
    ]
    return [Turn(FIRST_PORT + number, load, sender) for number, (load, sender) in enumerate(pairs)]


def script(trains: int) -> str:
    """Returns the guest's script."""
    started = {
        "one busy loop": ["burn & one=$!"],
        "two busy loops": ["burn & two=$!"],
        "cross traffic": [
            "kill $one $two",
            f"bench-packets mmsg {SINK}:{CROSS_PORT} 1000 4 0 1000000 300 >/tmp/cross & cross=$!",
        ],
    }
    lines, before = [], LOADS[0]
    for turn in turns():
        if turn.load != before:
            lines += started[turn.load]
            before = turn.load
        qdisc, command = SENDERS[turn.sender]
        lines.append(f"turn {turn.port} '{qdisc}' {command}")
    made = SCRIPT.replace("TURNS", "\n".join(lines))
    values = {
        "ADDRESS": ADDRESS,
        "SINK": SINK,
        "MAC": GATEWAY_MAC,
        "PACKETS": PACKETS,
        "GAP": GAP_US,
        "BYTES": IP_BYTES,
        "TRAINS": trains,
    }
    for name, value in values.items():
        made = made.replace(name, str(value))
    return made


def read_departures(content: bytes) -> dict[int, list[int]]:
    """Returns when packets left, in nanoseconds of the simulated clock, by the port that they were sent to."""
    if len(content) < PCAP.size or (magic := PCAP.unpack_from(content)[0]) not in (NANOSECONDS, MICROSECONDS):
        raise BenchError("QEMU wrote no capture")
    fraction_ns = 1 if magic == NANOSECONDS else 1000
    left: dict[int, list[int]] = {}
    at = PCAP.size
    while at + RECORD.size <= len(content):
        seconds, fraction, length, _ = RECORD.unpack_from(content, at)
        frame = content[at + RECORD.size : at + RECORD.size + length]
        at += RECORD.size + length
        if len(frame) >= DESTINATION_PORT.stop and frame[12:14] == b"\x08\x00" and frame[23] == UDP:
            port = int.from_bytes(frame[DESTINATION_PORT], "big")
            left.setdefault(port, []).append(seconds * 1_000_000_000 + fraction * fraction_ns)
    return left


def gap_errors_us(left: list[int]) -> list[float]:
    """Returns the error of each gap within trains."""
    gaps = [(after - before) / 1000 for before, after in zip(left, left[1:])]
    return [abs(gap - GAP_US) for gap in gaps if gap < TRAIN_ENDS_US]


def simulate(trains: int) -> tuple[dict[int, list[int]], str]:
    """Runs the machine; returns when packets left, and its console's output."""
    with Scratch() as scratch:
        stripped = os.path.join(scratch.dir, "cheetah")
        shutil.copy(cheetah.binary(), stripped)
        if shutil.which("strip"):
            run(["strip", stripped])
        capture = os.path.join(scratch.dir, "capture")
        network = [
            "-netdev",
            "user,id=net0,restrict=on,net=10.0.2.0/24,host=10.0.2.2",
            "-device",
            "e1000,netdev=net0,romfile=",
        ]
        network += ["-object", f"filter-dump,id=dump,netdev=net0,file={capture},maxlen=64"]
        programs = {"cheetah": stripped, "bench-packets": packets_program()}
        console = guest.boot(
            script(trains), programs, scratch.dir, dataclasses.replace(MACHINE, network=tuple(network))
        )
        with open(capture, "rb") as file:
            return read_departures(file.read()), console


def measure(settings: Settings) -> list[Figure]:
    """Simulates once: the same instructions take the same time in every round."""
    departures, console = simulate(2 if settings.quick else 20)
    for line in console.splitlines():
        if " problem " in line:
            print(f"  {line.strip()}", flush=True)
    heads = ["load", "sender", "packets", "error p50 (µs)", "p99", "largest"]
    table = Table(f"Simulated: gaps of {GAP_US} µs", heads, note=NOTE)
    errors: dict[tuple[str, str], list[float]] = {}
    for turn in turns():
        left = departures.get(turn.port, [])
        found = errors[turn.load, turn.sender] = gap_errors_us(left)
        cells = [short(percentile(found, share)) if found else "" for share in (0.5, 0.99, 1.0)]
        table.rows.append([turn.load, turn.sender, str(len(left)), *cells])
    save([table], [], PART)
    print("\n".join(table.lines()), flush=True)
    return figures(errors)


def figures(errors: dict[tuple[str, str], list[float]]) -> list[Figure]:
    """Compares the best of our backends with the bound and with other senders."""
    made = []
    for load in LOADS:
        p99 = {
            sender: max(STAMP_US, percentile(errors[load, sender], 0.99))
            for sender in SENDERS
            if errors.get((load, sender))
        }
        ours = [value for sender, value in p99.items() if sender not in PEERS]
        best = {OURS: [min(ours)]} if ours else {}
        key = f"{PART}/{load.replace(' ', '-')}"
        if load in P99_US_MAX:
            samples = {**best, ALLOWED: [P99_US_MAX[load]]} if best else {}
            what = f"simulated, {load}: p99 of the error"
            made.append(Figure(f"{key}/p99", what, "µs", OURS, samples, "lower", 1.0, NOTE))
        samples = {**best, **{sender: [value] for sender, value in p99.items() if sender in PEERS}}
        what = f"simulated, {load}: p99 of the error beside other senders"
        made.append(Figure(f"{key}/peers", what, "µs", OURS, samples, "lower", PEER_SHARE, NOTE))
    return made
