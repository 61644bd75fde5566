"""Transfers of an image to another machine, beside pipes through nc: every kind of image over every link, with a cold
and a warm cache."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from bench.harness.rounds import interleave
from bench.images.acquired import KINDS, Images
from bench.scratch import Scratch
from bench.settings import Settings
from bench.tools import transfer
from cheetah.bench.figure import Figure
from cheetah.bench.units import MIB, iec

ROUNDS_MAX = 3
# `auto` beside the best fixed method; and the bytes on the wire beside iperf3.
AUTO_BAR, WIRE_BAR = 0.95, {"random": 0.95, "mixed": 0.97}
METHODS = ("auto", "none", "lz4", "zstd")
CACHES = ("warm", "cold")

# gzip and bzip2 run at a constant few MiB/s, minutes per GiB: they get a smaller image of the same kind.
SLOW = {"gzip | nc": 256 * MIB, "bzip2 | nc": 64 * MIB}
QUICK_BYTES = 32 * MIB


@dataclasses.dataclass(frozen=True)
class AcquireLink:
    """A link, and the size of the image sent over it: about ten seconds without compression."""

    key: str
    name: str
    rate: str | None
    rtt: str
    size_bytes: int


LINKS = (
    AcquireLink("loopback", "loopback", None, "0us", 1024 * MIB),
    AcquireLink("1gbit", "1 Gbit/s", "1gbit", "0us", 512 * MIB),
    AcquireLink("100mbit-20ms", "100 Mbit/s, 20 ms", "100mbit", "20ms", 128 * MIB),
)
# The disk is a hundred times faster than this link, so few contenders run with a cold cache.
SLOW_LINK = LINKS[2]


def ours(method: str) -> str:
    """Returns the name of our row."""
    return f"cheetah acquire ({method})"


OURS = [ours(method) for method in METHODS]


def image_for(images: Images, link: Any, kind: str, name: str, quick: bool) -> Any:
    """Returns the image that a row sends over a link."""
    size_bytes = min(link.size_bytes, SLOW.get(name, link.size_bytes))
    return images.get(kind, min(size_bytes, QUICK_BYTES) if quick else size_bytes)


def contenders(scratch: Scratch, between: Any, images: Images, link: Any, kind: str, cache: str, quick: bool) -> Any:
    """Returns the rows of one column: a name, and a function that makes one transfer."""
    senders: dict[str, tuple[Callable[..., Any], Any]] = {
        pipe.name: (transfer.by_pipe, pipe) for pipe in transfer.PIPES
    }
    if link is SLOW_LINK and cache == "cold":
        senders = {"cat | nc": senders["cat | nc"]}
    senders |= {ours(method): (transfer.by_cheetah, method) for method in METHODS}

    def turn(name: str) -> Any:
        how, what = senders[name]
        image = image_for(images, link, kind, name, quick)
        image.cache(cache == "warm")
        return how(scratch, between, what, image)

    return {name: functools.partial(turn, name) for name in senders}


def figures_of(link: Any, kind: str, cache: str, results: Any) -> Any:
    """Returns the figures of one column: our fastest row beside the pipes, `auto` beside the other methods, and, on a
    link with a rate, the bytes on the wire beside iperf3's throughput."""
    rates = {name: [sample["rate"] for sample in rounds] for name, rounds in results.items()}
    prefix, label = f"acquire/{link.key}/{kind}/{cache}", f"{link.name}, {kind}, {cache}"
    own = Figure(
        f"{prefix}/auto",
        f"{label}: auto beside the other methods",
        "MiB/s",
        ours("auto"),
        {name: rates[name] for name in OURS},
        bar=AUTO_BAR,
    )
    best = max(OURS, key=own.median)
    beside = {best: rates[best]} | {name: rates[name] for name in rates if name not in OURS and name != "iperf3"}
    figures = [Figure(prefix, f"{label}: image by the time it is flushed and hashed", "MiB/s", best, beside, bar=1.0)]
    if "iperf3" in rates and kind != "zeroed":
        wire = {best: [sample["wire"] for sample in results[best]], "iperf3": rates["iperf3"]}
        figures.append(Figure(f"{prefix}/wire", f"{label}: bytes on the wire", "MiB/s", best, wire, bar=WIRE_BAR[kind]))
    return [*figures, own]


def measure_link(scratch: Scratch, link: Any, images: Images, settings: Settings) -> list[Figure]:
    """Returns the figures of one link."""
    figures = []
    rounds = min(settings.rounds, ROUNDS_MAX)
    with transfer.ends(scratch, link.rate, link.rtt) as between:
        for kind in KINDS:
            for cache in CACHES:
                turns = contenders(scratch, between, images, link, kind, cache, settings.quick)
                if between.lab is not None:
                    turns["iperf3"] = lambda: between.link_rate(1 if settings.quick else 4)
                results = interleave(f"{link.name}, {kind}, {cache}", rounds, turns)
                figures += figures_of(link, kind, cache, results)
    return figures


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures."""
    with Scratch() as scratch:
        images = Images(scratch)
        sizes = ", ".join(f"{iec(link.size_bytes)} over {link.name}" for link in LINKS)
        print(f"acquire: {sizes}; about a quarter of an hour a round", flush=True)
        return [figure for link in LINKS for figure in measure_link(scratch, link, images, settings)]
