"""The price of a seal: a sealed drive beside the same drive unsealed, and beside nbdkit's luks filter."""

import os
from typing import Any

from bench.parts.drive import NODES
from bench.scratch import Scratch, write_random
from bench.settings import Settings
from bench.tools import cheetah, peers
from bench.tools.endpoint import Endpoint
from cheetah.bench.figure import Figure, Metric, from_rounds
from cheetah.bench.fio import Job
from cheetah.bench.rounds import interleave
from cheetah.bench.units import KIB, MIB, iec

SEALED, PLAIN = "sealed", "not sealed"

# id, what, pattern, block, depth, bytes sealed as a whole, bar beside the drive that is not sealed, bar beside luks.
WORKLOADS = (
    ("seq-read-1m", "1 MiB sequential read, depth 16, image", "read", MIB, 16, 64 * KIB, 0.65, 1.5),
    ("seq-write-1m", "1 MiB sequential write, depth 16, image", "write", MIB, 16, 64 * KIB, 0.65, 1.5),
    ("seq-read-1m-small", "1 MiB sequential read, depth 16, scratch drive", "read", MIB, 16, 4 * KIB, None, None),
    ("rand-read-4k-qd1", "4 KiB random read, depth 1, scratch drive", "randread", 4 * KIB, 1, 4 * KIB, 0.90, None),
    ("rand-read-4k-qd32", "4 KiB random read, depth 32, scratch drive", "randread", 4 * KIB, 32, 4 * KIB, 0.80, None),
    (
        "rand-write-4k-qd32",
        "4 KiB random write, depth 32, scratch drive",
        "randwrite",
        4 * KIB,
        32,
        4 * KIB,
        None,
        None,
    ),
    ("rand-read-4k-image", "4 KiB random read, depth 1, image", "randread", 4 * KIB, 1, 64 * KIB, None, None),
)


def drives(scratch: Scratch, pattern: str, unit_bytes: int) -> Any:
    """Loads random bytes into a sealed drive and one that is not sealed, over the same nodes; returns their writable
    exports."""
    size_bytes = os.path.getsize(pattern)
    nodes = [cheetah.node(scratch, 2 * (size_bytes // NODES + 2 * MIB)) for _ in range(NODES)]
    key = scratch.path("identity")
    cheetah.call(["drive", "identity", key])
    exports = {}
    for name, seal, identity in (
        (SEALED, ["--seal", "--seal-unit", iec(unit_bytes).replace(" ", "")], ["--identity", key]),
        (PLAIN, ["--no-seal"], []),
    ):
        drive = scratch.path("drive") + ".drive"
        listed = ",".join(node.nbd for node in nodes)
        cheetah.call(["create", drive, "--nodes", listed, "--layout", "stripe", "--from", pattern, *seal, *identity])
        argv = ["export", drive, "--listen", "127.0.0.1:0", "--writable", *identity]
        process, ready = cheetah.serve(scratch, name, argv)
        exports[name] = Endpoint(name, ready["uri"], [process])
    return exports


def measure(settings: Settings) -> list[Figure]:
    """Measures the part: each kind of drive in turn."""
    figures = []
    for unit_bytes in (64 * KIB, 4 * KIB):
        with Scratch() as scratch:
            pattern = write_random(os.path.join(scratch.ram_dir, "pattern"), settings.size_bytes)
            servers = drives(scratch, pattern, unit_bytes)
            if unit_bytes == 64 * KIB:
                luks = peers.nbdkit_luks(scratch, settings.size_bytes)
                luks.fill(pattern)
                servers[luks.name] = luks
            os.remove(pattern)
            print(
                f"seal: {iec(settings.size_bytes)}, units of {iec(unit_bytes)}, {NODES} nodes, loopback TCP", flush=True
            )
            for key, what, rw, block_bytes, depth, unit, plain_bar, luks_bar in WORKLOADS:
                if unit != unit_bytes:
                    continue
                job = Job(rw, block_bytes, settings.size_bytes, depth, runtime_s=settings.runtime_s)
                turns = {name: lambda server=server, job=job: server.measure(job) for name, server in servers.items()}
                metric, of = ("rate", "MiB/s") if block_bytes >= MIB else ("iops", "requests/s")
                results = interleave(what, settings.rounds, turns, metric)
                for peer, bar in ((PLAIN, plain_bar), (peers.LUKS, luks_bar)):
                    if peer in results:
                        pair = {name: results[name] for name in (SEALED, peer)}
                        metrics = (Metric(metric, "", of, "higher", bar),)
                        suffix = "" if peer == PLAIN else "/luks"
                        about = what if peer == PLAIN else f"{what}, beside luks"
                        figures += from_rounds(f"seal/{key}{suffix}", about, SEALED, metrics, pair)
    return figures
