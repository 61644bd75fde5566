"""Short blocks read from an iSCSI unit, through our export and through qemu-nbd with libiscsi; and sequential writes over delayed
links, of a drive over NBD beside an iSCSI unit written by qemu-img."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable
from typing import Any

from bench.harness.figures import Metric
from bench.harness.fio import Job
from bench.harness.process import timed
from bench.harness.rounds import interleave, while_time_lasts
from bench.images.acquired import Images
from bench.remote import lines, tcp
from bench.report import grid
from bench.scratch import Scratch, drop_caches
from bench.settings import Settings
from bench.tools import cheetah, peers
from bench.tools.endpoint import Endpoint
from cheetah.bench.figure import Figure
from cheetah.bench.units import GIB, KIB, MIB, iec
from lab.network import Lab

PART = "remote-blocks"
RATE = "1gbit"
ROUNDS_MAX = 3
BLOCKS_BYTES = (512, KIB, 4 * KIB, 16 * KIB, 64 * KIB)
DEPTHS = (1, 4, 8, 32)
WRITE_DEPTHS = (1, 4, 16)
CONNECTIONS = (1, 4)
UNIT_BYTES, UNIT_BYTES_QUICK = GIB, 64 * MIB
WRITTEN_BYTES, WRITTEN_BYTES_QUICK = 256 * MIB, 16 * MIB
READ = (
    Metric("iops", "reads", "/s"),
    Metric("cpu", "processor time of the client", "µs a read", "lower"),
    Metric("p99", "99th percentile", "µs", "lower"),
)
WRITTEN = (Metric("rate", "rate", "MiB/s"),)


def exported(scratch: Scratch, lab: Lab, unit: str) -> Endpoint:
    """Serves the unit on the examiner's machine through our initiator, on a Unix socket."""
    socket = scratch.path("export")
    process, ready = cheetah.serve(scratch, "cheetah export", ["export", unit, "--unix", socket], lab.examiner.command)
    return Endpoint("cheetah export", ready["uri"], [process], lab.examiner.command)


def by_libiscsi(scratch: Scratch, lab: Lab, unit: str) -> Endpoint:
    """Serves the unit on the examiner's machine through libiscsi, on a Unix socket."""
    socket = scratch.path("qemu")
    argv = ["qemu-nbd", "--format=raw", "--read-only", "--persistent", "--shared=0", f"--socket={socket}", unit]
    process = scratch.start("qemu-nbd", lab.examiner.command(argv))
    process.wait_until(lambda: os.path.exists(socket), "socket")
    return Endpoint("qemu-nbd", f"nbd+unix:///?socket={socket}", [process], lab.examiner.command)


SERVERS: dict[str, Callable[[Scratch, Lab, str], Endpoint]] = {
    "cheetah export": exported,
    "qemu-nbd (libiscsi)": by_libiscsi,
}


def read_once(lab: Lab, unit: str, server: str, job: Job) -> dict[str, float]:
    """Reads blocks at random through a fresh server, so that nothing is cached on the examiner's side."""
    with Scratch() as turn:
        drop_caches()
        return SERVERS[server](turn, lab, unit).measure(job)


def measure_reads(block_bytes: int, delay_ms: float, settings: Settings) -> list[Figure]:
    """Returns the figures of one size of blocks at one delay."""
    rounds = min(settings.rounds, ROUNDS_MAX)
    line = lines.line(RATE, delay_ms)
    size_bytes = UNIT_BYTES_QUICK if settings.quick else UNIT_BYTES
    with Scratch() as scratch, line.lab() as lab:
        image = Images(scratch).get("random", size_bytes)
        unit = peers.tgtd(scratch, image.path, lab.nodes[0].address, lab.nodes[0].command)
        turns = {}
        for server, depth in itertools.product(SERVERS, (1, 8) if settings.quick else DEPTHS):
            job = Job("randread", block_bytes, size_bytes, depth, runtime_s=settings.runtime_s)
            turns[f"{server}, {depth} in flight"] = functools.partial(read_once, lab, unit, server, job)
        results = interleave(f"{iec(block_bytes)}, {line.name}", rounds, turns, ("iops", "cpu"))
    note = (
        f"Reads at random of a unit of {iec(size_bytes)} of tgtd over {lines.RATES[RATE]} by fio's nbd engine through a fresh server, with cold caches, "
        f"{settings.runtime_s:g} s each, in up to {rounds} rounds. TCP has {tcp.USUAL}."
    )
    return grid.figures(PART, f"Reads of {iec(block_bytes)}", line.name, results, READ, note)


def write_drive(lab: Lab, drive: str, depth: int, connections: int, size_bytes: int) -> dict[str, float]:
    """Writes a drive through a fresh writable export on the examiner's machine, and flushes it."""
    with Scratch() as turn:
        server = cheetah.export(turn, drive, writable=True, tcp=False, enter=lab.examiner.command)
        job = Job("write", MIB, size_bytes, depth, threads=connections, fsync_at_end=True)
        return {"rate": server.measure(job)["rate"]}


def write_unit(lab: Lab, unit: str, path: str, coroutines: int, size_bytes: int) -> dict[str, float]:
    """Writes an iSCSI unit by qemu-img, with as many requests at once, and flushes it."""
    argv = ["qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", "-m", str(coroutines), "-W", path, unit]
    return {"rate": size_bytes / MIB / timed(lab.examiner.command(argv))}


def measure_writes(delay_ms: float, settings: Settings) -> list[Figure]:
    """Returns the figures of sequential writes at one delay."""
    rounds = min(settings.rounds, ROUNDS_MAX)
    line = lines.line(RATE, delay_ms)
    size_bytes = WRITTEN_BYTES_QUICK if settings.quick else WRITTEN_BYTES
    turns: dict[str, Any] = {}
    with Scratch() as scratch, line.lab() as lab:
        node = lab.nodes[0]
        image = Images(scratch).get("random", size_bytes)
        target = os.path.join(scratch.ram_dir, "unit")
        with open(target, "wb") as file:
            file.truncate(size_bytes)
        unit = peers.tgtd(scratch, target, node.address, node.command, writable=True)
        drive = cheetah.create(
            scratch,
            [cheetah.node(scratch, size_bytes, node.address, node.command)],
            size_bytes,
            enter=lab.examiner.command,
        )
        depths = (1, 4) if settings.quick else WRITE_DEPTHS
        for connections, depth in itertools.product(CONNECTIONS, depths):
            name = f"a drive, {connections} clients, {depth} in flight"
            turns[name] = functools.partial(write_drive, lab, drive, depth, connections, size_bytes)
        for depth in depths:
            name = f"iSCSI by qemu-img, {depth} in flight"
            turns[name] = functools.partial(write_unit, lab, unit, image.path, depth, size_bytes)
        results = interleave(f"writes, {line.name}", rounds, turns)
    note = (
        f"Writes of {iec(size_bytes)} of random bytes into memory at the far end, by 1 MiB (qemu-img chooses its own), flushed, in up to "
        f"{rounds} rounds. TCP has {tcp.USUAL}. A drive: fio through `cheetah export --writable` over one node; a client is a connection to the export."
    )
    return grid.figures(PART, "Sequential writes", line.name, results, WRITTEN, note)


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures."""
    delays = (10,) if settings.quick else lines.DELAYS_MS
    print(f"{PART}: delays {delays} ms", flush=True)
    columns: list[Callable[[], list[Figure]]] = [
        functools.partial(measure_reads, block_bytes, delay_ms, settings)
        for block_bytes in ((512, 16 * KIB) if settings.quick else BLOCKS_BYTES)
        for delay_ms in delays
    ]
    columns += [functools.partial(measure_writes, delay_ms, settings) for delay_ms in delays]
    return while_time_lasts(columns)
