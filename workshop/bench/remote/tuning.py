"""Tuning over delayed links: `--tune`, congestion control, windows and connections over NBD, for an acquisition and for a mount that
is read from its start; and the keys of the login over iSCSI."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import time
from collections.abc import Callable
from typing import Any

from bench.harness.figures import Metric
from bench.harness.rounds import interleave, while_time_lasts
from bench.images.acquired import Images
from bench.remote import lines, tcp
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
from lab.network import Lab

PART = "remote-tuning"
ROUNDS_MAX = 3
# About five seconds of each link.
SIZES_BYTES, SIZE_BYTES_QUICK = {"1gbit": 512 * MIB, "100mbit": 64 * MIB}, 16 * MIB
LIMIT_S = 60.0
RATE = Metric("rate", "rate", "MiB/s")
ACQUIRED = (RATE, Metric("moving", "rate from the first read to the last", "MiB/s"))
CONTROLS = ("cubic", "bbr")
WINDOWS = {"windows of 6 MiB": 6 * MIB, "windows of 64 MiB": 64 * MIB}
TUNINGS = ("auto", "file")
# The most connections that an agent takes, with its port. Its probe has the next one. A client opens eight where the server is far.
PORTS = {8: 10809, 2: 10821, 1: 10823}
# What --tune must reach of the best setting made by hand.
BAR = 0.97
ISCSI_RATE, ISCSI_DELAY_MS = "1gbit", 20
ISCSI_BYTES = 128 * MIB
KEYS: dict[str, tuple[str, ...]] = {
    "commands": ("1", "4", "16", "32", "64", "128", "256"),
    "sessions": ("1", "2", "4", "8"),
    "MaxRecvDataSegmentLength": ("8192", "65536", "262144", "1048576"),
    "MaxBurstLength": ("65536", "262144", "1048576", "16776192"),
    "FirstBurstLength": ("512", "65536", "262144"),
    "ImmediateData": ("No", "Yes"),
}
KEYS_QUICK: dict[str, tuple[str, ...]] = {"commands": ("1", "32"), "sessions": ("1", "2")}

Turn = Callable[[], dict[str, float]]


@dataclasses.dataclass(frozen=True)
class Kernel:
    """The settings of TCP at both ends."""

    control: str
    windows: str

    @property
    def name(self) -> str:
        """Returns its name in rows."""
        return f"{self.control}, {self.windows}"

    def set(self, lab: Lab) -> None:
        """Gives them to all machines."""
        tcp.set_control(lab, self.control)
        tcp.set_windows(lab, WINDOWS[self.windows])


USUAL = Kernel(tcp.USUAL, next(iter(WINDOWS)))
"""The settings of most machines."""


def tuned(how: str, kernel: Kernel) -> str:
    """Returns the name of a row with `--tune`."""
    return f"--tune {how}, 8 connections, {kernel.name}"


def by_hand(connections: int, kernel: Kernel) -> str:
    """Returns the name of a row without it."""
    return f"--tune off, {connections} connection{'s' if connections > 1 else ''}, {kernel.name}"


def acquire(lab: Lab, uri: str, image: Any, options: tuple[str, ...], kernel: Kernel | None = None) -> dict[str, float]:
    """Acquires a source with these options; returns the rate from the start of the command to the flushed image, and that of the
    report, which counts from the first read. The limit is the time of an acquisition that takes longer."""
    if kernel:
        kernel.set(lab)
    with Scratch() as turn:
        image.cache(warm=True)
        argv = cheetah.acquire_argv(uri, os.path.join(turn.disk_dir, "acquired.raw"), "md5", options)
        done = run_limited(lab.examiner.command(argv), LIMIT_S)
        sample = {"rate": image.size_bytes / MIB / done.seconds}
        if done.finished:
            report = cheetah.acquired(done.printed.decode())
            if report["hashes"]["md5"] != image.md5:
                raise BenchError(f"{uri}: what was acquired is not the image")
            sample["moving"] = image.size_bytes / MIB / report["duration_s"]
        return sample


def mount_and_read(lab: Lab, uri: str, image: Any, how: str) -> dict[str, float]:
    """Mounts a source and reads all of it; returns the rate from the mounting command on."""
    USUAL.set(lab)
    with Scratch() as turn:
        image.cache(warm=True)
        start = time.perf_counter()
        directory = turn.make_dir("mount")
        argv = ["mount", uri, directory, "--tune", how]
        _, ready = cheetah.serve(turn, "cheetah mount", argv, lab.examiner.command)
        path = os.path.join(directory, os.path.basename(ready["file"]))
        done = run_limited(["cat", path], LIMIT_S, out=os.devnull)
        seconds = time.perf_counter() - start if done.finished else LIMIT_S
        return {"rate": image.size_bytes / MIB / seconds}


def report_of(scratch: Scratch, lab: Lab) -> str:
    """Probes the path to the agent, as it is usually; returns the file of the report."""
    USUAL.set(lab)
    path = scratch.path("path.json")
    argv = [cheetah.binary(), "probe", lab.nodes[0].address, "--far", str(PORTS[8] + 1), "--json"]
    with open(path, "w", encoding="utf-8") as file:
        file.write(run(lab.examiner.command(argv)))
    return path


def kernels(rate: str, quick: bool) -> list[Kernel]:
    """Returns the settings to compare. Over a link that loses packets windows do not grow to any of these limits."""
    windows = list(WINDOWS) if rate == "1gbit" and not quick else [USUAL.windows]
    return [Kernel(*pair) for pair in itertools.product(CONTROLS[:1] if quick else CONTROLS, windows)]


def acquisitions(lab: Lab, image: Any, probed: str, found: list[Kernel]) -> dict[str, Turn]:
    """Returns all settings of an acquisition."""
    address = lab.nodes[0].address
    turns: dict[str, Turn] = {}
    for kernel in found:
        for how in TUNINGS:
            options = ("--tune", probed if how == "file" else how)
            uri = f"nbd://{address}:{PORTS[8]}/"
            turns[tuned(how, kernel)] = functools.partial(acquire, lab, uri, image, options, kernel)
        for connections, port in PORTS.items():
            uri = f"nbd://{address}:{port}/"
            turns[by_hand(connections, kernel)] = functools.partial(acquire, lab, uri, image, ("--tune", "off"), kernel)
    return turns


def judged(line: FarLine, results: grid.Results, note: str) -> list[Figure]:
    """Returns the figures of `--tune` beside every setting by hand, and beside those with the same settings of the kernel, which
    `--tune` does not change."""
    rates = {name: [sample["rate"] for sample in found] for name, found in results.items()}
    figures = []
    for how in TUNINGS:
        mine = tuned(how, USUAL)
        hand = {name: found for name, found in rates.items() if name.startswith("--tune off")}
        alike = {name: found for name, found in hand.items() if name.endswith(USUAL.name)}
        for key, said, others in (
            ("", "every setting by hand", hand),
            ("-connections", "1, 2 and 8 connections", alike),
        ):
            what = f"--tune {how} beside {said}, {line.name}"
            samples = {mine: rates[mine], **others}
            name = f"{PART}/{how}{key}-{line.rate}-{line.name}"
            figures.append(Figure(name, what, "MiB/s", mine, samples, "higher", BAR, note))
    return figures


def measure_nbd(line: FarLine, settings: Settings) -> list[Figure]:
    """Returns the figures over NBD at one link, from agents."""
    rounds = min(settings.rounds, ROUNDS_MAX)
    size_bytes = SIZE_BYTES_QUICK if settings.quick else SIZES_BYTES[line.rate]
    with Scratch() as scratch, line.lab() as lab:
        image = Images(scratch).get("random", size_bytes)
        node = lab.nodes[0]
        for connections, port in PORTS.items():
            options = () if connections == max(PORTS) else ("--connections-max", str(connections))
            cheetah.agent(scratch, image.path, f"{node.address}:{port}", node.command, options)
        probed = report_of(scratch, lab)
        turns = acquisitions(lab, image, probed, kernels(line.rate, settings.quick))
        over = f"{lines.RATES[line.rate]}, {line.name}"
        results = interleave(f"NBD, {over}", rounds, turns, ("rate", "moving"))
        uri = f"nbd://{node.address}:{PORTS[8]}/"
        turns = {
            f"--tune {how}": functools.partial(mount_and_read, lab, uri, image, probed if how == "file" else how)
            for how in ("off", *TUNINGS)
        }
        mounts = interleave(f"mount, {over}", rounds, turns)
    note = (
        f"{iec(size_bytes)} of random bytes over {lines.RATES[line.rate]} in up to {rounds} rounds, in the memory of the site. The rate of an acquisition counts from the "
        f"command to the flushed and hashed (MD5) image, so it includes what `--tune auto` measures first. A turn was cut off at {LIMIT_S:g} s, which "
        "then counts as its time: its rate is at most the one shown. Without delay a client opens two connections at most."
    )
    figures = grid.figures(PART, f"Acquiring over {over}", line.name, results, ACQUIRED, note)
    figures += grid.figures(PART, f"Mounting and reading over {over}", line.name, mounts, (RATE,), note)
    return figures + judged(line, results, note)


def measure_key(key: str, values: tuple[str, ...], settings: Settings) -> list[Figure]:
    """Returns the figures of one key over iSCSI."""
    rounds = min(settings.rounds, ROUNDS_MAX)
    size_bytes = SIZE_BYTES_QUICK if settings.quick else ISCSI_BYTES
    line = lines.line(ISCSI_RATE, ISCSI_DELAY_MS)
    more = "&MaxBurstLength=262144" if key == "FirstBurstLength" else ""
    with Scratch() as scratch, line.lab() as lab:
        image = Images(scratch).get("random", size_bytes)
        node = lab.nodes[0]
        unit = peers.tgtd(scratch, image.path, node.address, node.command)
        turns = {
            f"{key}={value}": functools.partial(acquire, lab, f"{unit}?{key}={value}{more}", image, ())
            for value in values
        }
        results = interleave(f"iSCSI, {key}", rounds, turns)
    note = (
        f"Over iSCSI: {iec(size_bytes)} of random bytes over {lines.RATES[ISCSI_RATE]} from tgtd, hashed (MD5) and flushed, in up to {rounds} rounds, with {tcp.USUAL}; "
        f"cut off at {LIMIT_S:g} s."
    )
    return grid.figures(PART, f"Over iSCSI by {key}", line.name, results, ACQUIRED, note)


def links(quick: bool) -> list[FarLine]:
    """Returns the links over NBD: the longest first."""
    if quick:
        return [lines.line("1gbit", 10)]
    delays = tuple(reversed(lines.DELAYS_MS))
    found = [lines.line("1gbit", delay) for delay in delays]
    return found + [lines.line("100mbit", *pair) for pair in itertools.product(delays, lines.LOSSES_PERCENT[1:])]


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures."""
    keys = KEYS_QUICK if settings.quick else KEYS
    found = links(settings.quick)
    print(f"{PART}: {len(found)} links over NBD, {len(keys)} keys over iSCSI", flush=True)
    columns: list[Callable[[], list[Figure]]] = [functools.partial(measure_nbd, line, settings) for line in found]
    columns += [functools.partial(measure_key, key, values, settings) for key, values in keys.items()]
    with tcp.allowed_controls():
        return while_time_lasts(columns)
