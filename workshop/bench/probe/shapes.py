"""Capacity of paths whose links are shaped as real ones are: late relays, token buckets, aggregation, policers, and far ends
that answer little. The figure must be right within 2 % or not known."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable

from bench.probe.paths import enter
from bench.probe.tables import Table, save
from bench.settings import Settings
from bench.tools import cheetah
from bench.tools.limited import run_limited
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.units import short
from lab.link import Link
from lab.network import Lab

PART = "probe-shapes"
RIGHT, NOT_KNOWN, WRONG = "right", "not known", "wrong"
ERROR_PERCENT_MAX = 2.0
LIMIT_S = 90.0
FAST, SLOW = 100, 20
NOTE = (
    "Links have 1 ms one way and 100 Mbit/s unless said. A policer drops what exceeds a bucket of 32 KiB. CAKE shapes without a burst, "
    "so with one flow it is a spaced link, and with several flows one on which they take turns: the lab's relay simulates that by deficit round "
    "robin between the probe's frames and cross traffic, since the kernel here has neither CAKE nor fq_codel. Cross traffic that always "
    "waited would leave an even half of such a link, which nothing tells from a link of half the rate. A wrong capacity is a defect; "
    "one that is not known is not."
)


def _nothing(_: Lab) -> None:
    pass


def _far(*arguments: str) -> Callable[[Lab], object]:
    """Returns a change of the far end: a command on its machine."""
    return lambda lab: lab.nodes[0].namespace.run([*arguments])


def _towards(*qdisc: str) -> Callable[[Lab], object]:
    """Returns another queue discipline in front of the node's link."""
    return lambda lab: lab.switch.run(["tc", "qdisc", "replace", "dev", "port1", "root", *qdisc])


def _first_hop(rate_mbit: int) -> Callable[[Lab], object]:
    """Returns a token bucket where packets leave the examiner's machine."""
    return lambda lab: lab.examiner.run(["tc", "qdisc", "add", "dev", "eth0", "root", *_bucket(rate_mbit)])


def _by_way_of_another(lab: Lab) -> None:
    """Leads packets to the second node by way of the first, whose link is slower."""
    router, far = lab.nodes
    for setting in (
        "net.ipv4.ip_forward=1",
        "net.ipv4.conf.all.send_redirects=0",
        "net.ipv4.conf.eth0.send_redirects=0",
    ):
        router.namespace.run(["sysctl", "-q", "-w", setting])
    lab.examiner.run(["ip", "route", "add", f"{far.address}/32", "via", router.address])
    far.namespace.run(["ip", "route", "add", f"{lab.examiner_address}/32", "via", router.address])


def _bucket(rate_mbit: int, limit: str = "250kb") -> list[str]:
    return ["tbf", "rate", f"{rate_mbit}mbit", "burst", "32kb", "limit", limit]


def _spaced(rate_mbit: int = FAST, fair: bool = False, **more: int) -> Link:
    return Link(rate_mbit * 1_000_000, 1_000, spaced=True, fair=fair, **more)


@dataclasses.dataclass(frozen=True)
class Shape:
    """A path: its links, what is changed on it, and its capacity."""

    what: str
    links: tuple[Link, ...]
    rate_mbit: int = FAST
    change: Callable[[Lab], object] = _nothing


NO_ECHO = ("sysctl", "-q", "-w", "net.ipv4.icmp_echo_ignore_all=1")
SHAPES = (
    Shape("spaced (also CAKE with one flow)", (_spaced(),)),
    Shape("relay late by up to 0.3 ms", (_spaced(late_us=300),)),
    Shape("relay late by up to 1 ms", (_spaced(late_us=1_000),)),
    Shape("relay late by up to 3 ms", (_spaced(late_us=3_000),)),
    Shape("token bucket", (Link(FAST * 1_000_000),)),
    Shape("aggregation of 1 ms towards the node", (_spaced(batch_to_us=1_000),)),
    Shape("aggregation of 4 ms each way", (_spaced(batch_to_us=4_000, batch_from_us=4_000),)),
    Shape("policer", (Link(None),), SLOW, _towards(*_bucket(SLOW, "2kb"))),
    Shape(
        "answers over a token bucket of 20 Mbit/s",
        (_spaced(),),
        FAST,
        _far("tc", "qdisc", "add", "dev", "eth0", "root", *_bucket(SLOW)),
    ),
    Shape("first hop of 20 Mbit/s, a token bucket", (_spaced(),), SLOW, _first_hop(SLOW)),
    Shape("middle hop of 20 Mbit/s, last of 100", (_spaced(SLOW), _spaced()), SLOW, _by_way_of_another),
    Shape("far end answers TCP only", (_spaced(),), FAST, _far(*NO_ECHO)),
    Shape("far end answers nothing", (_spaced(),), FAST, _far("ip", "route", "add", "blackhole", "10.77.0.1/32")),
    Shape(
        "fair queue (as in CAKE and fq_codel) beside 50 % random cross traffic",
        (_spaced(fair=True, cross_ppm=500_000),),
    ),
    Shape("fair queue beside 75 % cross traffic in bursts", (_spaced(fair=True, cross_ppm=750_000, cross_burst=32),)),
)
QUICK = (
    "spaced (also CAKE with one flow)",
    "token bucket",
    "policer",
    "middle hop of 20 Mbit/s, last of 100",
    "far end answers nothing",
)


def judge(found_mbit: float | None, rate_mbit: int) -> str:
    """Judges one capacity."""
    if found_mbit is None:
        return NOT_KNOWN
    return RIGHT if 100 * abs(found_mbit / rate_mbit - 1) <= ERROR_PERCENT_MAX else WRONG


def capacity(lab: Lab) -> float | None:
    """Returns the capacity of the path to the last node in Mbit/s; None if it is not known."""
    argv = [cheetah.binary(), "--json", "probe", lab.nodes[-1].address, "--only", "capacity", "--far", "none"]
    try:
        measured = cheetah.last_json(run_limited(enter(lab, argv), LIMIT_S).printed.decode(errors="replace"))
    except (BenchError, ValueError) as error:
        print(f"    {error}", flush=True)
        return None
    found = measured.get("report", measured).get("capacity")
    return found["bits_per_s"] / 1e6 if found else None


def measure(settings: Settings) -> list[Figure]:
    """Measures each shape in each round."""
    table = Table(
        "Capacity through shaped paths",
        ["path", "capacity (Mbit/s)", "measured (median)", RIGHT, NOT_KNOWN, WRONG],
        note=NOTE,
    )
    figures = []
    for number, shape in enumerate(SHAPES):
        if settings.quick and shape.what not in QUICK:
            continue
        links = dict(enumerate(shape.links, 1))
        with Lab(len(links), None, links=links) as lab:
            shape.change(lab)
            found = [capacity(lab) for _ in range(settings.rounds)]
        known = [one for one in found if one is not None]
        verdicts = [judge(one, shape.rate_mbit) for one in found]
        counts = [verdicts.count(verdict) for verdict in (RIGHT, NOT_KNOWN, WRONG)]
        median = short(statistics.median(known)) if known else NOT_KNOWN
        table.rows.append([shape.what, str(shape.rate_mbit), median, *map(str, counts)])
        # One more than the count, since a ratio to no wrong result at all does not exist.
        samples = {"cheetah probe": [1.0 + counts[2]], "none": [1.0]}
        what = f"{shape.what}: capacities off by more than 2 %, plus one"
        figures.append(Figure(f"{PART}/{number}", what, "results", "cheetah probe", samples, "lower", 1.0, NOTE))
        print(f"  {shape.what}: {', '.join(verdicts)} ({median} of {shape.rate_mbit} Mbit/s)", flush=True)
    save([table], [], PART)
    return figures
