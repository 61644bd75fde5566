"""Available bandwidth: `cheetah probe` over spaced links of the lab with simulated cross traffic, beside the rate that TCP
reaches on the same path (iperf3)."""

from __future__ import annotations

import functools
import json
import statistics

from bench.harness.rounds import interleave
from bench.probe.paths import DELAY_US, enter
from bench.probe.tables import Table, save
from bench.settings import Settings
from bench.tools import cheetah
from bench.tools.limited import run_limited
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.units import short
from lab.link import Link
from lab.network import Lab

PART = "probe-available"
OURS, TCP, ALLOWED = "cheetah probe", "iperf3 (TCP)", "allowed"
RATES_MBIT = (10, 100, 1000)
CROSS_PERCENT = (0, 10, 25, 50, 75, 90)
# Frames of cross traffic that arrive together; 0 is evenly spaced. Random frames lie between these two, and cost a third of the time.
KINDS = {"steady": 0, "bursty": 32}
KINDS_FULL = {"steady": 0, "random": 1, "bursty": 32}
ERROR_PERCENT_MAX = 15.0
LIMIT_S = 60.0
NOTE = (
    "Links have 1 ms one way. Cross traffic towards the node takes its share of the wire's time: steady frames come at equal "
    "intervals, bursty ones 32 at a time, random ones (with --full) one by one (Poisson). iperf3 is a bound rather than an estimate: TCP also "
    "pushes its own headers, and cross traffic here does not give way to it. Not known is no error; a figure off by more than 15 % is."
)


def by_cheetah(lab: Lab) -> dict[str, float | None]:
    """Returns the available bandwidth in Mbit/s by `cheetah probe`; None if it does not know."""
    argv = [cheetah.binary(), "--json", "probe", lab.nodes[0].address, "--only", "available", "--far", "none"]
    done = run_limited(enter(lab, argv), LIMIT_S)
    measured = cheetah.last_json(done.printed.decode(errors="replace"))
    available = measured.get("report", measured).get("available")
    return {"mbit": available["bits_per_s"] / 1e6 if available else None}


def by_iperf3(lab: Lab, seconds: int) -> dict[str, float | None]:
    """Returns the rate of one TCP connection in Mbit/s of whole frames. Raises BenchError if it breaks off, as it does when bursts of
    cross traffic delay its own control connection."""
    node = lab.nodes[0]
    argv = ["iperf3", "--client", node.address, "--time", str(seconds), "--omit", "1", "--json"]
    done = run_limited(enter(lab, argv), LIMIT_S)
    report = json.loads(done.printed)
    received = report["end"].get("sum_received")
    if received is None:
        raise BenchError(f"iperf3: {report.get('error', 'no result')}")
    return {"mbit": received["bits_per_second"] * 1514 / 1448 / 1e6}


def error_percent(found_mbit: float, rate_mbit: int, cross_percent: int) -> float:
    """Returns the error of an estimate."""
    left_mbit = rate_mbit * (100 - cross_percent) / 100
    return 100 * abs(found_mbit / left_mbit - 1)


def verdict(found: list[float | None], rate_mbit: int, cross_percent: int) -> str:
    """Counts the estimates that are right, not known, and wrong."""
    errors = [error_percent(one, rate_mbit, cross_percent) for one in found if one is not None]
    right = sum(error <= ERROR_PERCENT_MAX for error in errors)
    return f"{right} right, {len(found) - len(errors)} not known, {len(errors) - right} wrong"


def _turn(measured_by: functools.partial[dict[str, float | None]]) -> dict[str, float | None]:
    try:
        return measured_by()
    except BenchError as error:
        print(f"    {error}", flush=True)
        return {"mbit": None}


def measure(settings: Settings) -> list[Figure]:
    """Measures every rate, share and kind of cross traffic."""
    figures = []
    heads = [
        "link (Mbit/s)",
        "cross traffic",
        "left (Mbit/s)",
        f"{OURS} (median)",
        "error (%)",
        "estimates",
        f"{TCP} (median)",
    ]
    table = Table("Available bandwidth", heads, note=NOTE)
    for rate_mbit in RATES_MBIT[1:2] if settings.quick else RATES_MBIT:
        for cross in CROSS_PERCENT[::3] if settings.quick else CROSS_PERCENT:
            for kind, burst in (KINDS_FULL if settings.full else KINDS).items():
                if not cross and burst != KINDS["steady"]:
                    continue
                link = Link(rate_mbit * 1_000_000, DELAY_US, spaced=True, cross_ppm=cross * 10_000, cross_burst=burst)
                found = _path(link, f"{rate_mbit} Mbit/s, {cross} % {kind}", settings)
                ours, tcp = ([one["mbit"] for one in found[name]] for name in (OURS, TCP))
                known, carried = ([one for one in values if one is not None] for values in (ours, tcp))
                errors = [error_percent(one, rate_mbit, cross) for one in known]
                samples = {OURS: errors, ALLOWED: [ERROR_PERCENT_MAX] * len(errors)} if errors else {}
                what = f"{rate_mbit} Mbit/s, {cross} % {kind} cross traffic: error"
                key = f"{PART}/{rate_mbit}mbit/{cross}-{kind}"
                figures.append(Figure(key, what, "%", OURS, samples, "lower", 1.0, NOTE))
                table.rows.append(
                    [
                        str(rate_mbit),
                        f"{cross} %, {kind}" if cross else "none",
                        short(rate_mbit * (100 - cross) / 100),
                        short(statistics.median(known)) if known else "not known",
                        short(statistics.median(errors)) if errors else "",
                        verdict(ours, rate_mbit, cross),
                        short(statistics.median(carried)) if carried else "",
                    ]
                )
    save([table], [], PART)
    print("\n".join(table.lines()), flush=True)
    return figures


def _path(link: Link, what: str, settings: Settings) -> dict[str, list[dict[str, float | None]]]:
    """Measures one path in turns."""
    with Lab(1, link=link) as lab:
        node = lab.nodes[0]
        # It ends with the lab, which ends the processes in it.
        node.namespace.run(["iperf3", "--server", "--daemon"])
        seconds = 2 if settings.quick else 5
        turns = {
            OURS: functools.partial(_turn, functools.partial(by_cheetah, lab)),
            TCP: functools.partial(_turn, functools.partial(by_iperf3, lab, seconds)),
        }
        return interleave(what, settings.rounds, turns, "mbit")
