"""Tuning of an acquisition over delayed links: `--tune`, congestion control, windows and connections over NBD, and the keys of
the login over iSCSI."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections.abc import Iterator
from typing import Any

from bench.harness.figures import Metric
from bench.harness.rounds import interleave
from bench.images.acquired import Images
from bench.remote import lines
from bench.remote.lines import FarLine
from bench.report import grid
from bench.scratch import Scratch
from bench.settings import Settings
from bench.tools import cheetah, peers
from bench.tools.limited import run_limited
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.process import run
from cheetah.bench.units import MIB, iec
from lab.namespace import Namespace
from lab.network import Lab

PART = "remote-tuning"
ROUNDS_MAX = 3
SIZE_BYTES, SIZE_BYTES_QUICK = 512 * MIB, 16 * MIB
LIMIT_S = 300.0
METRICS = (Metric("rate", "rate", "MiB/s"),)
CONTROLS = ("cubic", "bbr")
AVAILABLE = "/proc/sys/net/ipv4/tcp_available_congestion_control"
ALLOWED = "/proc/sys/net/ipv4/tcp_allowed_congestion_control"
WINDOWS = {"windows of 6 MiB": 6 * MIB, "windows of 64 MiB": 64 * MIB}
TUNINGS = ("off", "auto", "file")
# What --tune must reach of the best setting made by hand.
BAR = 0.97
ISCSI_DELAY_MS = 20
KEYS = {
    "commands": (1, 4, 16, 32, 64, 128, 256),
    "sessions": (1, 2, 4, 8),
    "MaxRecvDataSegmentLength": (8192, 65536, 262144, 1048576),
    "MaxBurstLength": (65536, 262144, 1048576, 16776192),
    "FirstBurstLength": (512, 65536, 262144),
    "ImmediateData": ("No", "Yes"),
}
KEYS_QUICK = {"commands": (1, 32), "sessions": (1, 2)}


@contextlib.contextmanager
def allowed_controls() -> Iterator[None]:
    """Lets namespaces choose any congestion control that this machine has; afterwards only those as before."""
    with open(ALLOWED, encoding="ascii") as file:
        before = file.read()
    with open(AVAILABLE, encoding="ascii") as file:
        every = file.read()
    try:
        with open(ALLOWED, "w", encoding="ascii") as file:
            file.write(every)
        yield
    finally:
        with open(ALLOWED, "w", encoding="ascii") as file:
            file.write(before)


def set_tcp(lab: Lab, control: str, window_bytes: int) -> None:
    """Sets congestion control and the greatest windows of both ends. Raises BenchError without that control."""
    machines: list[Namespace] = [lab.examiner, *(node.namespace for node in lab.nodes)]
    for machine in machines:
        machine.set_sysctl("net/ipv4/tcp_congestion_control", control)
        for key in ("tcp_rmem", "tcp_wmem"):
            machine.set_sysctl(f"net/ipv4/{key}", f"4096 131072 {window_bytes}")
        if control not in machine.run(["cat", "/proc/sys/net/ipv4/tcp_congestion_control"]):
            raise BenchError(f"this kernel has no congestion control {control}")


def acquire(
    lab: Lab, uri: str, image: Any, options: tuple[str, ...], setting: tuple[str, int] | None = None
) -> dict[str, float]:
    """Acquires a source with these options; returns the rate, from the start of the command to the flushed image."""
    if setting:
        set_tcp(lab, *setting)
    with Scratch() as turn:
        image.cache(warm=True)
        argv = cheetah.acquire_argv(uri, os.path.join(turn.disk_dir, "acquired.raw"), "md5", options)
        done = run_limited(lab.examiner.command(argv), LIMIT_S)
        if done.finished and cheetah.acquired(done.printed.decode())["hashes"]["md5"] != image.md5:
            raise BenchError(f"{uri}: what was acquired is not the image")
        return {"rate": image.size_bytes / MIB / done.seconds}


def measure_nbd(line: FarLine, settings: Settings) -> list[Figure]:
    """Returns the figures over NBD at one link: from an agent, which `--tune auto` measures, and from nbdkit over one
    connection."""
    rounds = min(settings.rounds, ROUNDS_MAX)
    size_bytes = SIZE_BYTES_QUICK if settings.quick else SIZE_BYTES
    with Scratch() as scratch, line.lab() as lab:
        image = Images(scratch).get("random", size_bytes)
        node = lab.nodes[0]
        cheetah.agent(scratch, image.path, f"{node.address}:10809", node.command)
        one = peers.nbdkit_file(
            scratch, image.path, node.address, 10820, node.command, ["multi-conn"], ["multi-conn-mode=disable"]
        )
        probed = scratch.path("path.json")
        probe = [cheetah.binary(), "probe", node.address, "--far", "10810", "--json"]
        with open(probed, "w", encoding="utf-8") as file:
            file.write(run(lab.examiner.command(probe)))
        uri = f"nbd://{node.address}/"
        turns = {}
        controls = CONTROLS[:1] if settings.quick else CONTROLS
        windows = dict(itertools.islice(WINDOWS.items(), 1 if settings.quick else None))
        for control, (said, window_bytes) in itertools.product(controls, windows.items()):
            setting = (control, window_bytes)
            for tuning in TUNINGS:
                options = ("--tune", probed if tuning == "file" else tuning)
                name = f"--tune {tuning}, 8 connections, {control}, {said}"
                turns[name] = functools.partial(acquire, lab, uri, image, options, setting)
            name = f"--tune off, 1 connection, {control}, {said}"
            turns[name] = functools.partial(acquire, lab, one, image, ("--tune", "off"), setting)
        results = interleave(f"NBD, {line.name}", rounds, turns)
    note = f"{iec(size_bytes)} of random bytes in the memory of the site, hashed (MD5) and flushed, in up to {rounds} rounds."
    figures = grid.figures(PART, f"Over NBD, {line.name}", line.name, results, METRICS, note)
    rates = {name: [sample["rate"] for sample in found] for name, found in results.items()}
    for tuning in ("auto", "file"):
        mine = f"--tune {tuning}, 8 connections, {CONTROLS[0]}, {next(iter(WINDOWS))}"
        hand = {name: found for name, found in rates.items() if name.startswith("--tune off") or name == mine}
        what = f"--tune {tuning} beside every setting by hand, {line.name}"
        figures.append(Figure(f"{PART}/{tuning}-{line.name}", what, "MiB/s", mine, hand, "higher", BAR, note))
    return figures


def measure_iscsi(settings: Settings) -> list[Figure]:
    """Returns the figures of the keys over iSCSI, one changed at a time."""
    rounds = min(settings.rounds, ROUNDS_MAX)
    size_bytes = SIZE_BYTES_QUICK if settings.quick else SIZE_BYTES
    line = lines.line("1gbit", ISCSI_DELAY_MS)
    figures = []
    with Scratch() as scratch, line.lab() as lab:
        image = Images(scratch).get("random", size_bytes)
        node = lab.nodes[0]
        unit = peers.tgtd(scratch, image.path, node.address, node.command)
        for key, values in (KEYS_QUICK if settings.quick else KEYS).items():
            more = "&MaxBurstLength=262144" if key == "FirstBurstLength" else ""
            turns = {
                f"{key}={value}": functools.partial(acquire, lab, f"{unit}?{key}={value}{more}", image, ())
                for value in values
            }
            results = interleave(f"iSCSI, {key}", rounds, turns)
            note = f"Over iSCSI: {iec(size_bytes)} of random bytes, tgtd, hashed (MD5) and flushed, in up to {rounds} rounds."
            figures += grid.figures(PART, f"Over iSCSI by {key}", line.name, results, METRICS, note)
    return figures


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures."""
    found = [lines.line("1gbit", delay) for delay in lines.DELAYS_MS]
    found += [lines.line("100mbit", delay, loss) for delay in lines.DELAYS_MS for loss in lines.LOSSES_PERCENT[1:]]
    if settings.quick:
        found = [lines.line("1gbit", 10)]
    print(f"{PART}: {len(found)} links over NBD, {len(KEYS)} keys over iSCSI", flush=True)
    with allowed_controls():
        return [figure for line in found for figure in measure_nbd(line, settings)] + measure_iscsi(settings)
