"""Measures known paths by `cheetah probe`, without a far end's help: spaced links of the lab, idle and with cross
traffic on half of their capacity."""

from __future__ import annotations

import functools
import re
import shutil
import statistics
import time
from collections.abc import Callable, Sequence

from bench.harness.rounds import interleave
from bench.probe.senders import OURS
from bench.probe.stand import PORT, Judge, packets_program
from bench.probe.tables import Plot, Table
from bench.probe.trains import gaps_us, read_trains, split
from bench.report.curves import Chart, histogram
from bench.settings import Settings
from bench.tools import cheetah
from bench.tools.limited import run_limited
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.process import run
from cheetah.bench.units import short
from lab import relay
from lab.link import Link
from lab.network import Lab

RATES_MBIT = (10, 100, 1000)
CROSS_PPM = 500_000
DELAY_US = 1_000
# Relative, idle and with cross traffic.
CAPACITY_ERROR_MAX = {"idle": 0.02, "50 % cross traffic": 0.10}
ROUND_TRIP_ERROR_MS_MAX = 0.1
ALLOWED = "allowed"
LIMIT_S = 40.0
# Bytes of a probe for round trips: the IP packet of the usual `ping`, and ours (IP, ICMP, and a tag of 16 bytes).
PING_BYTES = 84
TRIP_BYTES = {OURS: 44}
ETHERNET_BYTES = 14
PAIRS, PAIR_BYTES = 100, 1500
NOTE = (
    "Paths are spaced links of the lab with 1 ms one way; the emulated round trip is twice that and the time that the frames "
    "of one probe there and back take on the wire. Cross traffic is on the way there. Errors are of what each says at the end."
)


def enter(lab: Lab, argv: Sequence[str]) -> list[str]:
    """Returns the command line that runs `argv` on the examiner's machine, off the relay's processor."""
    return lab.examiner.command([*relay.beside_prefix(), *argv])


def measured_by_cheetah(lab: Lab) -> dict[str, float | None]:
    """Measures the path to the node by `cheetah probe`."""
    argv = [cheetah.binary(), "--json", "probe", lab.nodes[0].address, "--only", "rtt,capacity", "--far", "none"]
    start = time.perf_counter()
    measured = cheetah.last_json(_printed(lab, argv))
    report = measured.get("report", measured)
    capacity, trip = report.get("capacity"), report.get("round_trip")
    return {
        "capacity": capacity["bits_per_s"] / 1e6 if capacity else None,
        "rtt": trip["median_us"] / 1000 if trip else None,
        "seconds": time.perf_counter() - start,
    }


def _printed(lab: Lab, argv: list[str]) -> str:
    """Returns a program's output within a time limit; nothing if it fails, which is logged."""
    try:
        done = run_limited(enter(lab, ["timeout", f"{LIMIT_S - 5:g}", *argv]), LIMIT_S)
        return done.printed.decode(errors="replace")
    except BenchError as error:
        print(f"    {error}", flush=True)
        return ""


def measured_by_pchar(lab: Lab) -> dict[str, float | None]:
    """pchar, with fewer and larger steps than its default, which takes minutes per hop."""
    argv = [
        "pchar",
        "-p",
        "ipv4icmp",
        "-R",
        "10",
        "-I",
        "146",
        "-g",
        "0.01",
        "-H",
        "1",
        "-m",
        "1500",
        lab.nodes[0].address,
    ]
    return {"capacity": _number(r"Hop char:.*bw = ([0-9.]+) Kbps", _printed(lab, argv), 1e-3)}


def measured_by_bing(lab: Lab) -> dict[str, float | None]:
    """Returns bing's last figure for the link to the node. It never ends by itself, and soon counts
    every answer as late."""
    argv = ["sh", "-c", 'timeout 6 "$@" 2>/dev/null; true', "sh", "bing", "-n", lab.nodes[0].address]
    printed = _printed(lab, argv)
    found = re.findall(r"\|\s+([0-9.]+)([KMG])b/s,[^\n|]*\n 1 ", printed)
    return {"capacity": float(found[-1][0]) * {"K": 1e-3, "M": 1.0, "G": 1e3}[found[-1][1]] if found else None}


def measured_by_nping(lab: Lab) -> dict[str, float | None]:
    """Returns nping's average."""
    argv = ["nping", "--icmp", "--count", "40", "--delay", "10ms", "--data-length", str(PING_BYTES - 28)]
    return {"rtt": _number(r"Avg rtt: ([0-9.]+)ms", _printed(lab, [*argv, lab.nodes[0].address]), 1.0)}


def measured_by_scamper(lab: Lab) -> dict[str, float | None]:
    """Returns scamper's average."""
    command = f"ping -c 5 -s {PING_BYTES} {lab.nodes[0].address}"
    printed = _printed(lab, ["scamper", "-O", "text", "-I", command])
    return {"rtt": _number(r"min/avg/max/\w+ = [0-9.]+/([0-9.]+)/", printed, 1.0)}


def measured_by_hping3(lab: Lab) -> dict[str, float | None]:
    """Returns hping3's average, which has a resolution of 0.1 ms."""
    argv = ["hping3", "--icmp", "--count", "40", "--interval", "u10000", "--data", str(PING_BYTES - 28)]
    printed = _printed(lab, ["sh", "-c", '"$@" 2>&1', "sh", *argv, lab.nodes[0].address])
    return {"rtt": _number(r"min/avg/max = [0-9.]+/([0-9.]+)/", printed, 1.0)}


def _number(pattern: str, printed: str, scale: float) -> float | None:
    found = re.search(pattern, printed, re.DOTALL)
    return float(found[1]) * scale if found else None


CAPACITY_TOOLS = {"pchar": measured_by_pchar, "bing": measured_by_bing}
TRIP_TOOLS = {"nping": measured_by_nping, "scamper": measured_by_scamper, "hping3": measured_by_hping3}


def emulated_ms(rate_mbit: float, ip_bytes: int = PING_BYTES) -> float:
    """Returns the round trip of a path: the delay, and a frame on the wire each way."""
    return 2 * (DELAY_US / 1000 + (ip_bytes + ETHERNET_BYTES) * 8 / (rate_mbit * 1000))


class Path:
    """One emulated path, measured by all tools."""

    def __init__(self, rate_mbit: int, load: str, settings: Settings) -> None:
        self.rate_mbit, self.load = rate_mbit, load
        link = Link(rate_mbit * 1_000_000, DELAY_US, spaced=True, cross_ppm=0 if load == "idle" else CROSS_PPM)
        tools: dict[str, Callable[[Lab], dict[str, float | None]]] = {OURS: measured_by_cheetah}
        if load == "idle" and not settings.quick:
            tools |= {name: tell for name, tell in {**CAPACITY_TOOLS, **TRIP_TOOLS}.items() if shutil.which(name)}
        with Lab(1, link=link) as lab:
            turns = {name: functools.partial(tell, lab) for name, tell in tools.items()}
            self.measured = interleave(
                f"{rate_mbit} Mbit/s, {load}", settings.rounds, turns, ("capacity", "rtt", "seconds")
            )
            self.dispersions = dispersions(lab, PAIRS // 5 if settings.quick else PAIRS)

    def _of(self, key: str) -> dict[str, list[float]]:
        measured = {
            name: [one[key] for one in rounds if one.get(key) is not None] for name, rounds in self.measured.items()
        }
        return {name: values for name, values in measured.items() if values}

    def _emulated_ms(self, name: str) -> float:
        return emulated_ms(self.rate_mbit, TRIP_BYTES.get(name, PING_BYTES))

    def figures(self) -> list[Figure]:
        """Compares errors of capacity and round trips with the bounds and the tools."""
        key, what = (
            f"{self.rate_mbit}mbit/{'idle' if self.load == 'idle' else 'cross'}",
            f"{self.rate_mbit} Mbit/s, {self.load}",
        )
        errors = {
            name: [abs(value / self.rate_mbit - 1) for value in values] for name, values in self._of("capacity").items()
        }
        figures = _against(
            f"probe/capacity/{key}",
            f"{what}: error of the capacity",
            "%",
            {name: [100 * error for error in values] for name, values in errors.items()},
            100 * CAPACITY_ERROR_MAX[self.load],
        )
        if self.load == "idle":
            trips = {
                name: [abs(value - self._emulated_ms(name)) for value in values]
                for name, values in self._of("rtt").items()
            }
            said = f"{what}: error of the round trip of {self._emulated_ms(OURS):.3f} ms"
            figures += _against(f"probe/rtt/{key}", said, "ms", trips, ROUND_TRIP_ERROR_MS_MAX)
        return figures

    def rows(self) -> list[list[str]]:
        """Returns all results."""
        said = {name: (self._of("capacity").get(name), self._of("rtt").get(name)) for name in self.measured}
        return [
            [
                f"{self.rate_mbit} Mbit/s, {self.load}",
                name,
                f"{short(statistics.median(capacity))}" if capacity else "",
                f"{statistics.median(trip):.3f} of {self._emulated_ms(name):.3f}" if trip else "",
            ]
            for name, (capacity, trip) in said.items()
        ]


def _against(key: str, what: str, unit: str, errors: dict[str, list[float]], most: float) -> list[Figure]:
    """Compares ours with the bound, and shows the others without one."""
    mine = errors.get(OURS)
    samples = {OURS: mine, ALLOWED: [most] * len(mine)} if mine else {}
    figures = [Figure(key, what, unit, OURS, samples, "lower", 1.0, NOTE)]
    if mine and len(errors) > 1:
        figures.append(Figure(f"{key}/peers", f"{what}, beside tools", unit, OURS, errors, "lower", None, NOTE))
    return figures


def dispersions(lab: Lab, pairs: int) -> list[float]:
    """Returns the gaps of back-to-back pairs after the link, in microseconds."""
    node = lab.nodes[0]
    judge = Judge(node.namespace, "eth0")
    try:
        numbers = (PAIR_BYTES, 2, 0, pairs, 5_000)
        printed = run(enter(lab, [packets_program(), "mmsg", f"{node.address}:{PORT}", *map(str, numbers)]), 60)
        time.sleep(0.2)
        trains = split(judge.collect(PAIR_BYTES), [train[0] for train in read_trains(printed)[0]])
    finally:
        judge.stop()
    return gaps_us(train for train in trains if len(train) == 2)


def measure(settings: Settings) -> tuple[list[Figure], list[Table], list[Plot]]:
    """All paths."""
    figures: list[Figure] = []
    table = Table("Paths as measured by each tool", ["path", "by", "capacity (Mbit/s)", "round trip (ms)"])
    charts = []
    # Slow links take a long time.
    for rate_mbit in RATES_MBIT[1:] if settings.quick else RATES_MBIT:
        curves, wire_us = [], (PAIR_BYTES + ETHERNET_BYTES) * 8 / rate_mbit
        for load in CAPACITY_ERROR_MAX:
            path = Path(rate_mbit, load, settings)
            figures += path.figures()
            table.rows += path.rows()
            curves.append(histogram(load, path.dispersions, 0.0, 4 * wire_us))
        charts.append(
            Chart(f"Dispersion of pairs, {rate_mbit} Mbit/s: {wire_us:.1f} µs in theory", "µs", curves, False)
        )
    return figures, [table], [Plot("probe-dispersion", "Dispersion of packet pairs behind emulated links", charts)]
