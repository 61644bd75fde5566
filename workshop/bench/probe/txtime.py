"""Checks SO_TXTIME in a kernel with FQ and ETF: packets wait in the kernel, and leave in order and at the times given
with them. `python3 -m bench.probe.txtime` ends in PASS or FAIL. All of it is emulated, so timing is, too."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import sys
from collections.abc import Sequence
from typing import Any

from bench.probe import guest
from bench.probe.stand import PORT, packets_program
from bench.probe.tables import Plot, Table
from bench.probe.trains import percentile
from bench.scratch import Scratch
from bench.settings import Settings
from bench.tools import cheetah
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.process import run
from cheetah.bench.units import short

# The lead before the first packet: an emulated processor is slow.
PACKETS, GAP_MS, START_MS = 12, 200, 500
IP_BYTES = 1000
# A sender that slept between packets would have at most one queued.
HELD_MIN = 3
# An emulated processor is late; a packet that does not wait is early by most of the train's 2.2 s.
WITHIN_MS = 60.0
# ETF drops packets later than this, so it must exceed the lateness of such a processor.
DELTA_MS = 60
CONSOLE_LINES = 30
OURS = "as it should be"
NOTE = (
    "In Debian's kernel 6.12 under QEMU's TCG, over a veth pair: function is shown; times are those of an emulated "
    "processor and say nothing of real ones."
)
# The arguments of `tc` for each queue discipline.
QDISCS = {"fq": "fq", "etf": f"etf clockid CLOCK_TAI delta {DELTA_MS * 1_000_000}"}
# `ip` and `tc` by their paths: the shell would prefer busybox's own.
SCRIPT = """#!/bin/sh
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
for module in veth sch_fq sch_etf; do insmod /modules/$module.ko; done
/bin/ip link add wire0 type veth peer name wire1
/bin/ip link set lo up; /bin/ip link set wire0 up; /bin/ip link set wire1 up
/bin/ip address add 10.78.0.1/24 dev wire0
/bin/ip neigh replace 10.78.0.3 lladdr 02:00:00:00:00:03 dev wire0
probe() { cheetah --json probe 10.78.0.3 --send PATTERN --port PORT --packet-bytes BYTES --gap-error-max 1s "$@" 2>&1; }
watch() { for turn in $(seq 60); do /bin/tc -s qdisc show dev wire0 | grep backlog; sleep 0.1; done; }
turn() {
    name=$1; shift
    /bin/tc qdisc replace dev wire0 root "$@" || echo "@$name problem tc refuses $*"
    (sleep 9; echo) | bench-packets receive wire1 PORT >/tmp/arrived &
    receiver=$!
    sleep 0.5
    watch >/tmp/backlog &
    probe --backend txtime >/tmp/sent
    wait $receiver
    sed "s/^/@$name sent /" /tmp/sent
    sed "s/^/@$name arrived /" /tmp/arrived
    sed "s/^/@$name queue /" /tmp/backlog
}
probe --backend txtime | sed "s/^/@none sent /"
TURNS
poweroff -f
"""


def script() -> str:
    """Returns the guest's script."""
    turns = "\n".join(f"turn {name} {how}" for name, how in QDISCS.items())
    pattern = "at:" + ",".join(f"{START_MS + number * GAP_MS}ms" for number in range(PACKETS))
    made = SCRIPT.replace("TURNS", turns).replace("PATTERN", pattern)
    return made.replace("PORT", str(PORT)).replace("BYTES", str(IP_BYTES))


@dataclasses.dataclass
class Turn:
    """The result of one queue discipline."""

    backend: str = ""
    due: list[int] = dataclasses.field(default_factory=list)
    arrived: list[int] = dataclasses.field(default_factory=list)
    held_max: int = 0
    said: str = ""

    def errors_ms(self) -> list[float]:
        """Returns the lateness of each packet."""
        return [(came - due) / 1e6 for due, came in zip(self.due, self.arrived)]

    def on_time(self) -> int:
        """Returns how many left in order and on time."""
        if len(self.arrived) != len(self.due) or self.arrived != sorted(self.arrived):
            return 0
        return sum(abs(error) <= WITHIN_MS for error in self.errors_ms())

    def problems(self, name: str) -> list[str]:
        """Returns the deviations."""
        found = []
        if self.backend != f"txtime-{name}":
            found.append(f"{name}: the backend is '{self.backend}': {self.said[-300:]}")
        if self.on_time() != PACKETS:
            found.append(f"{name}: {self.on_time()} of {PACKETS} packets left in order and when due")
        if self.held_max < HELD_MIN:
            found.append(f"{name}: the kernel never held more than {self.held_max} packets")
        return found


def read(console: str) -> dict[str, Turn]:
    """Reads the guest's console output."""
    turns: dict[str, Turn] = {}
    for line in console.splitlines():
        found = re.match(r"@(\w+) (sent|arrived|queue|problem) (.*)", line.strip())
        if not found:
            continue
        turn, said = turns.setdefault(found[1], Turn()), found[3]
        if found[2] == "sent":
            turn.said += said + "\n"
            _read_sent(turn, said)
        elif found[2] == "arrived" and re.fullmatch(rf"\d+ {IP_BYTES}", said):
            turn.arrived.append(int(said.split()[0]))
        elif found[2] == "queue" and (held := re.search(r"backlog \S+ (\d+)p", said)):
            turn.held_max = max(turn.held_max, int(held[1]))
        elif found[2] == "problem":
            turn.said += said + "\n"
    return turns


def _read_sent(turn: Turn, said: str) -> None:
    try:
        event: dict[str, Any] = json.loads(said)
    except ValueError:
        return
    if event.get("event") == "train":
        turn.due = event["due_ns"]
    turn.backend = event.get("backend", turn.backend)


def console() -> str:
    """Boots the guest; returns its console output."""
    with Scratch() as scratch:
        stripped = os.path.join(scratch.dir, "cheetah")
        shutil.copy(cheetah.binary(), stripped)
        if shutil.which("strip"):
            run(["strip", stripped])
        programs = {"cheetah": stripped, "bench-packets": packets_program()}
        return guest.boot(script(), programs, scratch.dir)


def problems_of(turns: dict[str, Turn]) -> list[str]:
    """Returns the deviations; none is a pass."""
    found = [problem for name in QDISCS for problem in turns.get(name, Turn()).problems(name)]
    if (without := turns.get("none", Turn())).due:
        found.append(f"without either the backend was not refused, but '{without.backend}'")
    return found


def measure(settings: Settings) -> tuple[list[Figure], list[Table], list[Plot]]:
    """Returns figures and a table; reports it if the guest cannot be built."""
    figures = [_figure(name, None) for name in QDISCS]
    table = Table(
        "SO_TXTIME in an emulated machine",
        [
            "queue discipline",
            "backend named",
            "packets in order and when due",
            "most held by the kernel",
            "late p50 / p99 (ms, emulated)",
        ],
    )
    if settings.quick:
        print("  SO_TXTIME: not in a quick run, since an emulated machine takes its time", flush=True)
        return figures, [], []
    try:
        turns = read(console())
    except BenchError as error:
        print(f"  SO_TXTIME: not measured: {error}", flush=True)
        return figures, [], []
    for name in QDISCS:
        turn = turns.get(name, Turn())
        late = " / ".join(short(percentile(turn.errors_ms(), share)) for share in (0.5, 0.99)) if turn.arrived else ""
        table.rows.append([name, turn.backend, f"{turn.on_time()} of {PACKETS}", str(turn.held_max), late])
    for problem in (found := problems_of(turns)):
        print(f"  SO_TXTIME: {problem}", flush=True)
    table.note = f"{NOTE} Without either, `--backend txtime` is refused. {'PASS' if not found else 'FAIL'}."
    return [_figure(name, turns.get(name, Turn())) for name in QDISCS], [table], []


def _figure(name: str, turn: Turn | None) -> Figure:
    good = None if turn is None else (0 if turn.problems(name) else turn.on_time())
    samples = {} if good is None else {OURS: [float(good)], "packets": [float(PACKETS)]}
    what = (
        f"SO_TXTIME with {name.upper()} (emulated): held by the kernel, in order, within {WITHIN_MS:g} ms of when due"
    )
    return Figure(f"probe/txtime/{name}", what, "packets", OURS, samples, "higher", 1.0, NOTE)


def main(_: Sequence[str]) -> int:
    """Prints the result."""
    try:
        printed = console()
    except BenchError as error:
        print(f"SKIPPED: {error}")
        return 2
    turns = read(printed)
    for name, turn in turns.items():
        print(
            f"{name}: backend '{turn.backend}', {turn.on_time()} of {len(turn.due)} on time, most held {turn.held_max}, "
            f"late by {[round(error, 2) for error in turn.errors_ms()]} ms (emulated)"
        )
    found = problems_of(turns)
    if found:
        print("\n".join([line for line in printed.splitlines() if not line.startswith("@")][-CONSOLE_LINES:]))
    for problem in found:
        print(problem)
    print("FAIL" if found else "PASS")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
