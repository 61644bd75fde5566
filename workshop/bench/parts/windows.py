"""The program for Windows in Wine, beside the same program on Linux: a node, and an agent behind a link."""

import functools
import itertools
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from bench.harness.figures import Metric, from_rounds
from bench.harness.fio import Job
from bench.harness.rounds import interleave
from bench.images.acquired import AcquiredImage, Images
from bench.parts.links import DEPTH, RATE
from bench.scratch import Scratch, write_random
from bench.settings import Settings
from bench.tools import cheetah, transfer
from bench.tools.endpoint import Endpoint
from bench.tools.transfer import TransferEnds
from bench.tools.wine import Wine, there
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.units import KIB, MIB, iec
from cheetah.bench.verbs import Enter

IN_WINE, ON_LINUX, LINK = "in Wine", "on Linux", "iperf3"
NODE_BAR, AGENT_BAR = 0.5, 0.95
IMAGE_BYTES, IMAGE_BYTES_QUICK = 512 * MIB, 32 * MIB

# id, what, pattern, block, depth, metric, unit, bar.
WORKLOADS = (
    ("seq-read-1m-qd16", "a node, 1 MiB sequential read, depth 16", "read", MIB, DEPTH, "rate", "MiB/s", NODE_BAR),
    ("rand-read-4k-qd1", "a node, 4 KiB random read, depth 1", "randread", 4 * KIB, 1, "iops", "requests/s", None),
    ("rand-read-4k-qd32", "a node, 4 KiB random read, depth 32", "randread", 4 * KIB, 32, "iops", "requests/s", None),
)


def note(wine: Wine) -> str:
    """Returns the sentence below the tables."""
    return f"Run by {wine.version()}, which is not Windows: on Windows these figures are others."


def nodes(scratch: Scratch, wine: Wine, size_bytes: int) -> dict[str, Endpoint]:
    """Returns two running nodes that hold the same random bytes."""
    pattern = write_random(os.path.join(scratch.ram_dir, "pattern"), size_bytes)
    made = {
        # In Wine, no room is looked for in the network.
        IN_WINE: cheetah.node(scratch, size_bytes, enter=wine.command, options=("--room", "none")),
        ON_LINUX: cheetah.node(scratch, size_bytes),
    }
    servers = {name: node.export("bench", size_bytes) for name, node in made.items()}
    for server in servers.values():
        server.fill(pattern)
    os.remove(pattern)
    return servers


def measure_node(settings: Settings) -> list[Figure]:
    """Measures a node on loopback."""
    figures = []
    with Scratch() as scratch:
        wine = Wine.new(scratch)
        print(f"windows: {iec(settings.size_bytes)} of random bytes on each node, loopback TCP", flush=True)
        servers = nodes(scratch, wine, settings.size_bytes)
        for key, what, rw, block_bytes, depth, metric, unit, bar in WORKLOADS:
            job = Job(rw, block_bytes, settings.size_bytes, depth, runtime_s=settings.runtime_s)
            turns = {name: functools.partial(server.measure, job) for name, server in servers.items()}
            results = interleave(what, settings.rounds, turns, metric)
            metrics = (Metric(metric, "", unit, "higher", bar, note(wine)),)
            figures += from_rounds(f"windows/{key}", what, IN_WINE, metrics, results)
    return figures


def acquired(
    scratch: Scratch, between: TransferEnds, enter: Enter, served: str, image: AcquiredImage, port: int
) -> dict[str, float]:
    """Acquires an image from an agent that `enter` starts and that knows it as `served`; returns the image's MiB/s,
    from the start of the acquisition to its end. The copy is in memory, so that no disk is measured."""
    image.cache(warm=True)
    with scratch.child() as turn:
        address, target = f"{between.sender_address}:{port}", os.path.join(turn.ram_dir, "received.raw")
        cheetah.agent(turn, served, address, enter)
        start = time.perf_counter()
        report = cheetah.acquire(f"nbd://{address}/", target, "md5", enter=between.receiver)
        seconds = time.perf_counter() - start
    md5 = report["hashes"]["md5"]
    if md5 != image.md5:
        raise BenchError(f"the MD5 of the copy of {served} is {md5}, not {image.md5}")
    return {"rate": image.size_bytes / MIB / seconds}


def agent_figures(results: Mapping[str, Sequence[Mapping[str, Any]]], noted: str) -> list[Figure]:
    """Returns the figures of an acquisition: the agent in Wine beside the link, and beside the agent on Linux."""
    figures = []
    for key, what, peer, bar in (
        ("link", "acquiring from an agent behind 1 Gbit/s, beside the link", LINK, AGENT_BAR),
        ("linux", "acquiring from an agent behind 1 Gbit/s", ON_LINUX, None),
    ):
        pair = {name: results[name] for name in (IN_WINE, peer)}
        metrics = (Metric("rate", "", "MiB/s", "higher", bar, noted),)
        figures += from_rounds(f"windows/acquire/{key}", what, IN_WINE, metrics, pair)
    return figures


def measure_agent(settings: Settings) -> list[Figure]:
    """Measures acquisitions from an agent behind a link."""
    with Scratch() as scratch, transfer.ends(scratch, RATE, "0us") as between:
        # Its server is in the agent's namespace.
        wine = Wine.new(scratch, between.sender)
        image = Images(scratch).get("random", IMAGE_BYTES_QUICK if settings.quick else IMAGE_BYTES)
        print(f"windows: {iec(image.size_bytes)} of random bytes over {RATE}", flush=True)
        # An agent that was ended leaves connections at its port for a minute. Each also uses the next port.
        ports = itertools.count(transfer.PORT, 2)
        agents: dict[str, tuple[Enter, str]] = {
            IN_WINE: (lambda argv: between.sender(wine.command(argv)), there(image.path)),
            ON_LINUX: (between.sender, image.path),
        }

        def turn(name: str) -> dict[str, float]:
            return acquired(scratch, between, *agents[name], image, next(ports))

        turns: dict[str, Any] = {name: functools.partial(turn, name) for name in agents}
        turns[LINK] = functools.partial(between.link_rate, 1 if settings.quick else 4)
        return agent_figures(interleave("acquire, 1 Gbit/s", settings.rounds, turns), note(wine))


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures."""
    return [*measure_node(settings), *measure_agent(settings)]
