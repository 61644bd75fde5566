"""Trains in a simulated machine: its clock counts instructions (QEMU with `-icount`), and its packets are stamped by that
clock where they leave it (`filter-dump`). No host disturbs it, so that what remains is the work of its own kernel and
programs. It has one processor. Times are simulated, and stamps have a resolution of 1 µs.

Bars count all trains. What the senders say of each train is shown as well: that of the host should be nothing, and the self-check is
as strict as by default."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import shutil
import statistics
import struct
from collections.abc import Mapping, Sequence

from bench.probe import guest
from bench.probe.backends import best
from bench.probe.stand import packets_program
from bench.probe.tables import Table, save
from bench.probe.trains import TRAINS, SentTrain, TrainResults, gap_errors_us, percentile, three
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
# The resolution of the stamps. A smaller error counts as this one: a ratio to none at all does not exist.
STAMP_US = 1.0
# A simulated second takes up to ten, or many more beside other work.
BOOT_LIMIT_S = 4 * 3600.0
# If packets are missing, a pause longer than this ends a train. The senders pause for 20 ms between trains, and a thread that waits
# for two busy loops is kept from its processor for two ticks of 4 ms.
TRAIN_ENDS_NS = 15_000_000
PCAP = struct.Struct("<IHHiIII")
RECORD = struct.Struct("<IIII")
NANOSECONDS, MICROSECONDS = 0xA1B23C4D, 0xA1B2C3D4
UDP, DESTINATION_PORT = 17, slice(36, 38)
LOADS = ("idle", "one busy loop", "two busy loops", "cross traffic")
# What a sender says of a train: how long the host took the processor away, and the verdict of its self-check.
CHECK = re.compile(r'@(\d+) train "?(host|verdict)"?[: ]+"?(\w+)')
# The user and system time of a sender, from its start to its end, in seconds.
PROCESSOR = re.compile(r"@(\d+) processor ([\d.]+) ([\d.]+)")
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
    "none of them is that of a real machine. Debian's kernel 6.12, one processor, idle=poll, e1000. Stamps have a resolution of 1 µs, and a "
    "p99 below that counts as 1 µs. No host disturbs such a machine: bars count all trains, and the column beside them shows whether senders say "
    "so, too. Of a sender that lost packets no p99 is compared. ETF drops packets that carry no time, hence has no row with cross traffic."
)
BEST_NOTE = (
    "Of all rounds. The best backend under each load by the median of its p99 of each round, and those equal to it, are bold. “best of cheetah "
    "probe” is the best one there. Processor time is the median over the rounds of the sender's user and system time from its start to its "
    "end; the least of a backend is bold, too."
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
timed() { time -o /tmp/processor -f "%U %S" "$@"; }
ours() {
    timed cheetah --json probe SINK --send train:PACKETS@GAPus --port $PORT --packet-bytes BYTES \\
        --repeat TRAINS --again 0 --interval 20ms --rate-max 1000000 --packets-max 1000000 --backend $1 2>&1
}
theirs() { timed bench-packets $1 SINK:$PORT BYTES PACKETS GAP000 TRAINS 20000 2>&1; }
turn() {
    PORT=$1; qdisc=$2; shift 2
    /bin/tc qdisc replace dev eth0 root $qdisc || echo "@$PORT problem tc refuses $qdisc"
    # That a train was not accepted is no problem.
    "$@" >/tmp/sent || grep -q "trains left on time" /tmp/sent || sed "s/^/@$PORT problem /" /tmp/sent
    grep -o -E '^host [0-9]+|"host":[0-9]+|"verdict":"[a-z]+"' /tmp/sent | sed "s/^/@$PORT train /" >>/tmp/said
    # The first line may be that it failed.
    grep '^[0-9]' /tmp/processor | sed "s/^/@$PORT processor /" >>/tmp/said
}
burn() { while :; do :; done; }
TURNS
# Not before: the console would disturb the next sender. It takes a while to print.
cat /tmp/said
sleep 1
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


def read_checks(console: str) -> dict[tuple[int, str], list[str]]:
    """Returns what senders said of their trains (`host` and `verdict`), by the port that they sent to."""
    said: dict[tuple[int, str], list[str]] = {}
    for port, what, word in CHECK.findall(console):
        said.setdefault((int(port), what), []).append(word)
    return said


def read_processor_ms(console: str) -> dict[int, float]:
    """Returns the processor time of senders, by the port that they sent to."""
    return {int(port): 1000 * (float(user) + float(system)) for port, user, system in PROCESSOR.findall(console)}


def in_trains(left: Sequence[int], trains: int) -> list[list[int]]:
    """Splits departures into trains: by their number, or by the pauses if packets are missing."""
    if len(left) == PACKETS * trains:
        return [list(left[at : at + PACKETS]) for at in range(0, len(left), PACKETS)]
    made: list[list[int]] = []
    for at in left:
        if not made or at - made[-1][-1] >= TRAIN_ENDS_NS:
            made.append([])
        made[-1].append(at)
    return made


def results(left: Sequence[int], trains: int, hosts: Sequence[str], verdicts: Sequence[str]) -> TrainResults:
    """Returns the trains that left whole, with what their sender said of them."""
    found = in_trains(left, trains)
    # With fewer words than trains it is not known which is whose.
    stalls: list[int | None] = list(map(int, hosts)) if len(hosts) == len(found) else [None] * len(found)
    accepted: list[bool | None] = [None] * len(found)
    if len(verdicts) == len(found):
        accepted = [verdict == "accepted" for verdict in verdicts]
    sent = [
        SentTrain(train, accepted=good, host_ns=host_ns)
        for train, good, host_ns in zip(found, accepted, stalls)
        if len(train) == PACKETS
    ]
    return TrainResults(sent, trains)


def p99_us(sent: TrainResults) -> float | None:
    """Returns p99 of the gap error as far as stamps resolve it; None if packets are missing."""
    found = gap_errors_us(sent, GAP_US * 1000)
    return max(STAMP_US, percentile(found, 0.99)) if found and len(sent.sent) == sent.trains else None


def cross_traffic(left: Sequence[int]) -> str:
    """Says how much cross traffic there was."""
    if len(left) < 2:
        return "There was no cross traffic: its sender failed."
    a_second = (len(left) - 1) * 1e9 / (left[-1] - left[0])
    return f"Cross traffic is {a_second:,.0f} packets of 1000 bytes a second, four by each call of sendmmsg."


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


def _spread(sent: TrainResults) -> str:
    found = gap_errors_us(sent, GAP_US * 1000)
    return " / ".join(short(percentile(found, share)) for share in (0.5, 0.99, 1.0))


def medians_us(measured: Mapping[Turn, Sequence[TrainResults]], load: str) -> dict[str, float | None]:
    """Returns the median over the rounds of each sender's p99; None if packets were missing in one."""
    found: dict[str, float | None] = {}
    for turn, rounds in measured.items():
        if turn.load == load:
            p99 = [value for sent in rounds if (value := p99_us(sent)) is not None]
            found[turn.sender] = statistics.median(p99) if len(p99) == len(rounds) else None
    return found


def rows(
    measured: Mapping[Turn, Sequence[TrainResults]], processor_ms: Mapping[Turn, Sequence[float]]
) -> list[list[str]]:
    """Returns the table's rows, one a sender under a load, then how often each backend is the best."""
    made = []
    backends = [sender for sender in SENDERS if sender not in PEERS]
    most_exact, least_work = ({sender: 0 for sender in backends} for _ in range(2))
    for load in LOADS:
        late_us = medians_us(measured, load)
        work_ms = {
            turn.sender: statistics.median(all_ms)
            for turn, all_ms in processor_ms.items()
            if turn.load == load and all_ms
        }
        exact = best({sender: late_us.get(sender) for sender in backends})
        least = best({sender: work_ms.get(sender) for sender in backends})
        for turn, rounds in measured.items():
            if turn.load == load:
                cells = three(functools.reduce(TrainResults.__add__, rounds), _spread)
                work = short(work_ms[turn.sender]) if turn.sender in work_ms else ""
                if turn.sender in exact:
                    cells[0] = f"**{cells[0]}**"
                if turn.sender in least:
                    work = f"**{work}**"
                made.append([load, turn.sender, *cells, work])
        for wins, winners in ((most_exact, exact), (least_work, least)):
            for sender in winners:
                wins[sender] += 1
    for what, wins in (("the best", most_exact), ("the one with the least processor time", least_work)):
        made += [[f"loads under which it is {what}", sender, str(count), "", "", ""] for sender, count in wins.items()]
    return made


def _round(trains: int) -> tuple[dict[Turn, TrainResults], dict[int, float], str]:
    """Simulates once; returns the trains of each turn, the senders' processor time, and how much cross traffic there was."""
    departures, console = simulate(trains)
    for line in console.splitlines():
        if " problem " in line:
            print(f"  {line.strip()}", flush=True)
    said = read_checks(console)
    sent = {}
    for turn in turns():
        hosts, verdicts = (said.get((turn.port, what), []) for what in ("host", "verdict"))
        sent[turn] = results(departures.get(turn.port, []), trains, hosts, verdicts)
    return sent, read_processor_ms(console), cross_traffic(departures.get(CROSS_PORT, []))


def measure(settings: Settings) -> list[Figure]:
    """Simulates in each round: the clock is exact, but where ticks and other work fall differs from start to start."""
    measured: dict[Turn, list[TrainResults]] = {turn: [] for turn in turns()}
    processor_ms: dict[Turn, list[float]] = {turn: [] for turn in turns()}
    cross = ""
    for number in range(settings.rounds):
        sent, used_ms, cross = _round(2 if settings.quick else 20)
        for turn, found in sent.items():
            measured[turn].append(found)
            if turn.port in used_ms:
                processor_ms[turn].append(used_ms[turn.port])
        print(f"  simulated {number + 1} of {settings.rounds}", flush=True)
    heads = ["load", "sender", *(f"error p50 / p99 / largest, {head}" for head in TRAINS), "processor time (ms)"]
    table = Table(f"Simulated: gaps of {GAP_US} µs (µs)", heads, rows(measured, processor_ms), f"{BEST_NOTE} {cross}")
    save([table], [], PART)
    print("\n".join(table.lines()), flush=True)
    return figures(measured)


def figures(measured: Mapping[Turn, Sequence[TrainResults]]) -> list[Figure]:
    """Compares p99 of the best of our backends under each load with the bound and with other senders."""
    made = []
    for load in LOADS:
        medians = {sender: value for sender, value in medians_us(measured, load).items() if value is not None}
        p99 = {
            turn.sender: [value for sent in rounds if (value := p99_us(sent)) is not None]
            for turn, rounds in measured.items()
            if turn.load == load and turn.sender in medians
        }
        ours = [sender for sender in p99 if sender not in PEERS]
        mine = {OURS: p99[min(ours, key=medians.__getitem__)]} if ours else {}
        key = f"{PART}/{load.replace(' ', '-')}"
        if load in P99_US_MAX:
            samples = {**mine, ALLOWED: [P99_US_MAX[load]] * len(mine[OURS])} if mine else {}
            what = f"simulated, {load}: p99 of the error"
            made.append(Figure(f"{key}/p99", what, "µs", OURS, samples, "lower", 1.0, NOTE))
        samples = {**mine, **{sender: values for sender, values in p99.items() if sender in PEERS}}
        what = f"simulated, {load}: p99 of the error beside other senders"
        made.append(Figure(f"{key}/peers", what, "µs", OURS, samples, "lower", PEER_SHARE, NOTE))
    return made
