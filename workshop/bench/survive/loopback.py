"""Each workload on a redundant drive, on a stripe over as many nodes, and on other redundant storage; loopback."""

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any

from bench.harness.figures import Metric, from_rounds
from bench.harness.fio import Job
from bench.harness.rounds import interleave
from bench.scratch import Scratch, write_random
from bench.settings import Settings
from bench.survive import drives
from bench.survive.drives import Layout
from bench.tools import cheetah
from cheetah.bench.figure import Figure
from cheetah.bench.units import KIB, MIB, iec


@dataclasses.dataclass(frozen=True)
class Workload:
    """An access pattern, and its bar beside the stripe."""

    key: str
    what: str
    rw: str
    block_bytes: int
    depth: int
    bar: float | None


@dataclasses.dataclass(frozen=True)
class Bars:
    """The least shares of the stripe's figures, and the least multiple of the other storage's."""

    write: float
    overwrite: float
    peer: float
    read: float = 0.97
    degraded: float = 0.65


# Starts the other storage, fills it, and returns it; and loses one part of it.
StartPeer = Callable[[Scratch, int, str], Any]


def reads(bar: float, suffix: str = "", condition: str = "", sequential: float | None = None) -> tuple[Workload, ...]:
    """Returns the reading workloads."""
    large, small = "1 MiB sequential read, depth 16", "4 KiB random read, depth"
    return (
        Workload(f"seq-read-1m{suffix}", f"{large}{condition}", "read", MIB, 16, sequential),
        Workload(f"rand-read-4k-qd1{suffix}", f"{small} 1{condition}", "randread", 4 * KIB, 1, bar),
        Workload(f"rand-read-4k-qd32{suffix}", f"{small} 32{condition}", "randread", 4 * KIB, 32, bar),
    )


def writes(bars: Bars) -> tuple[Workload, ...]:
    """Returns the writing workloads."""
    return (
        Workload("seq-write-1m", "1 MiB sequential write, depth 16", "write", MIB, 16, bars.write),
        Workload("rand-write-4k-qd32", "4 KiB random overwrite, depth 32", "randwrite", 4 * KIB, 32, bars.overwrite),
    )


def compare(
    workloads: tuple[Workload, ...], servers: Mapping[str, Any], layout: Layout, bars: Bars, settings: Settings
) -> list[Figure]:
    """Measures each workload on all servers in turns. Ours has the layout's name; it has a bar beside the stripe, and
    another beside the other storage."""
    figures = []
    size_bytes = content_bytes(settings)
    for load in workloads:
        metric, unit = ("iops", "requests/s") if load.block_bytes < MIB else ("rate", "MiB/s")
        job = Job(load.rw, load.block_bytes, size_bytes, load.depth, runtime_s=settings.runtime_s / 4)
        turns = {name: lambda server=server, job=job: server.measure(job) for name, server in servers.items()}
        what = f"{layout.name}: {load.what}"
        results = interleave(what, settings.rounds, turns, metric)
        prefix = f"survive-{layout.name}/{load.key}"
        for name in servers:
            if name == layout.name:
                continue
            is_stripe = name == "stripe"
            bar = load.bar if is_stripe else bars.peer
            beside = Metric(metric, "" if is_stripe else f"beside {name}", unit, "higher", bar)
            pair = {one: results[one] for one in (layout.name, name)}
            suffix = "" if is_stripe else "/peer"
            figures += from_rounds(prefix + suffix, what, layout.name, (beside,), pair)
    return figures


def content_bytes(settings: Settings) -> int:
    """Returns the size of the drives."""
    return settings.size_bytes // 2


def measure_layout(settings: Settings, layout: Layout, bars: Bars, start_peer: StartPeer) -> list[Figure]:
    """Measures one layout: reads, writes, and reads after the loss of a node."""
    size_bytes = content_bytes(settings)
    with Scratch() as scratch:
        pattern = write_random(os.path.join(scratch.ram_dir, "pattern"), size_bytes)
        ours, nodes = drives.create_here(scratch, layout, size_bytes, pattern)
        striped, _ = drives.create_here(scratch, drives.stripe(layout.nodes), size_bytes, pattern)
        peer = start_peer(scratch, size_bytes, pattern)
        os.remove(pattern)
        print(f"survive: {layout.name}, {iec(size_bytes)} over {layout.nodes} nodes, loopback TCP", flush=True)

        def servers(turn: Scratch, writable: bool) -> dict[str, Any]:
            return {
                layout.name: cheetah.export(turn, ours, writable=writable, name=layout.name),
                "stripe": cheetah.export(turn, striped, writable=writable, name="stripe"),
                peer.name: peer,
            }

        with scratch.child() as turn:
            figures = compare(reads(bars.read, sequential=bars.read), servers(turn, False), layout, bars, settings)
        with scratch.child() as turn:
            figures += compare(writes(bars), servers(turn, True), layout, bars, settings)
        drives.kill(nodes[0])
        peer.lose_one()
        with scratch.child() as turn:
            degraded = reads(bars.degraded, "-degraded", " with a node lost")
            figures += compare(degraded, servers(turn, False), layout, bars, settings)
    return figures
