"""Acquiring, mounting and listing over links that lose packets, and two links of the field: NBD over one connection and eight,
iSCSI over one session and eight, beside the peers' initiators and clients."""

from __future__ import annotations

import functools
import itertools
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from bench.harness.figures import Metric
from bench.harness.patience import Patience
from bench.harness.rounds import interleave, while_time_lasts
from bench.images import examined
from bench.images.acquired import Images
from bench.images.site import (
    Attach,
    CutOff,
    Site,
    by_cheetah,
    by_cheetah_over_iscsi,
    by_cheetah_over_one,
    by_iscsi,
    by_nbdfuse,
    resident_share,
)
from bench.remote import lines, tcp
from bench.remote.lines import FarLine
from bench.report import grid
from bench.scratch import Scratch, drop_caches, warmest
from bench.settings import Settings
from bench.tools import cheetah, examiner, peers
from bench.tools.limited import run_limited
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.units import MIB, iec
from lab.network import Lab

PART = "remote-loss"
ROUNDS_MAX = 3
SIZE_BYTES, SIZE_BYTES_QUICK = 64 * MIB, 4 * MIB
LIMIT_S, LIMIT_QUICK_S = 240.0, 60.0
# Peers of a listing are cut off at this multiple of our time, beyond the goal.
PATIENCE, LEAST_S = 8.0, 30.0
SESSIONS = 8
OURS, PEER = "cheetah acquire, NBD, 8 connections", "qemu-img convert, iSCSI"
OUR_MOUNT, PEERS_MOUNT = "cheetah mount, NBD, 8 connections", "qemu-nbd and nbdfuse, iSCSI"
# The goal over the worst link: ours beside the initiator of the protocol that examiners use.
BAR, BAR_DELAY_MS, BAR_LOSS_PERCENT = 5.0, 20, 1
ACQUIRED = (Metric("rate", "rate", "MiB/s"),)
LISTED = (Metric("seconds", "elapsed", "s", "lower"),)


def _acquired(lab: Lab, uri: str, image: Any, limit_s: float) -> dict[str, float]:
    """Acquires a source, hashed and flushed; the limit is the time of an acquisition that takes longer."""
    with Scratch() as turn:
        image.cache(warm=True)
        argv = cheetah.acquire_argv(uri, os.path.join(turn.disk_dir, "acquired.raw"), "md5", ["--timeout", "60"])
        done = run_limited(lab.examiner.command(argv), limit_s)
        if done.finished and cheetah.acquired(done.printed.decode())["hashes"]["md5"] != image.md5:
            raise BenchError(f"{uri}: what was acquired is not the image")
        return {"rate": image.size_bytes / MIB / done.seconds}


def _copied(lab: Lab, line: str, uri: str, image: Any, limit_s: float) -> dict[str, float]:
    """Copies a source by a command line, flushed, without hashing."""
    with Scratch() as turn:
        image.cache(warm=True)
        target = os.path.join(turn.disk_dir, "copied.raw")
        argv = ["bash", "-c", f'{line} && sync "$2"', "copy", uri, target]
        return {"rate": image.size_bytes / MIB / run_limited(lab.examiner.command(argv), limit_s).seconds}


def acquisitions(
    scratch: Scratch, lab: Lab, image: Any, limit_s: float
) -> Mapping[str, Callable[[], dict[str, float]]]:
    """Returns all ways to acquire a disk of random bytes."""
    node = lab.nodes[0]
    many = peers.nbdkit_file(scratch, image.path, node.address, 10809, node.command)
    one = peers.nbdkit_one(scratch, image.path, node.address, 10810, node.command)
    unit = peers.tgtd(scratch, image.path, node.address, node.command)
    rows = {
        OURS: many,
        "cheetah acquire, NBD, 1 connection": one,
        "cheetah acquire, iSCSI, 1 session": unit,
        f"cheetah acquire, iSCSI, {SESSIONS} sessions": f"{unit}?sessions={SESSIONS}",
    }
    turns = {name: functools.partial(_acquired, lab, uri, image, limit_s) for name, uri in rows.items()}
    turns["nbdcopy, NBD"] = functools.partial(_copied, lab, 'nbdcopy "$1" "$2"', many, image, limit_s)
    turns[PEER] = functools.partial(_copied, lab, 'qemu-img convert -f raw -O raw "$1" "$2"', unit, image, limit_s)
    return turns


def measure_acquisitions(group: str, line: FarLine, settings: Settings) -> list[Figure]:
    """Returns the figures of acquiring over one link."""
    rounds = min(settings.rounds, ROUNDS_MAX)
    size_bytes = SIZE_BYTES_QUICK if settings.quick else SIZE_BYTES
    limit_s = LIMIT_QUICK_S if settings.quick else LIMIT_S
    with Scratch() as scratch, line.lab() as lab:
        image = Images(scratch).get("random", size_bytes)
        results = interleave(f"{group}, {line.name}", rounds, acquisitions(scratch, lab, image, limit_s))
    note = (
        f"Acquiring: {iec(size_bytes)} of random bytes in the memory of the site, in up to {rounds} rounds; ours with MD5, every target "
        f"flushed to this machine's disk. A turn was cut off at {limit_s:g} s, which then counts as its time: its rate is at most the one shown. "
        f"TCP has {tcp.USUAL}."
    )
    figures = grid.figures(PART, group, line.name, results, ACQUIRED, note)
    if has_the_bar(line):
        pair = {name: [sample["rate"] for sample in results[name]] for name in (OURS, PEER)}
        what = f"acquiring over {line.name}, beside the initiator of libiscsi"
        figures.append(Figure(f"{PART}/bar", what, "MiB/s", OURS, pair, "higher", BAR, note))
    return figures


def has_the_bar(line: FarLine) -> bool:
    """Whether the goal is set over this link."""
    return line == lines.line("100mbit", BAR_DELAY_MS, BAR_LOSS_PERCENT)


def listed(site: Site, attach: Attach, limit_s: float) -> dict[str, float]:
    """Mounts and lists from cold caches; returns the seconds, from the mounting command on."""
    with Scratch() as turn:
        drop_caches()
        resident = resident_share(site.image.path)
        site.stand_by()
        start = time.perf_counter()
        try:
            out = turn.path("bodyfile")
            done = examiner.listing(attach(turn, site), limit_s, out)
        except CutOff:
            return {"seconds": limit_s, "resident": resident}
        if not done.finished:
            return {"seconds": limit_s, "resident": resident}
        seconds = time.perf_counter() - start
        examiner.check_listing("listing", out, site.image.listing_sha256)
        return {"seconds": seconds, "resident": resident}


OUR_MOUNTS: dict[str, Attach] = {
    OUR_MOUNT: by_cheetah,
    "cheetah mount, NBD, 1 connection": by_cheetah_over_one,
    "cheetah mount, iSCSI": by_cheetah_over_iscsi,
}
PEERS_MOUNTS: dict[str, Attach] = {"nbdfuse, NBD": by_nbdfuse, PEERS_MOUNT: by_iscsi}


def listings(site: Site, patience: Patience, limit_s: float) -> Mapping[str, Callable[[], dict[str, float]]]:
    """Returns all ways to mount and list, ours first, after which peers are waited for."""

    def ours(attach: Attach) -> dict[str, float]:
        sample = listed(site, attach, limit_s)
        patience.saw(sample["seconds"])
        return sample

    rows = {name: functools.partial(ours, attach) for name, attach in OUR_MOUNTS.items()}
    return rows | {
        name: functools.partial(_peers_listing, site, attach, patience) for name, attach in PEERS_MOUNTS.items()
    }


def _peers_listing(site: Site, attach: Attach, patience: Patience) -> dict[str, float]:
    return listed(site, attach, patience.limit_s)


def measure_listings(group: str, line: FarLine, settings: Settings) -> list[Figure]:
    """Returns the figures of mounting and listing over one link."""
    rounds = min(settings.rounds, ROUNDS_MAX)
    limit_s = LIMIT_QUICK_S if settings.quick else LIMIT_S
    patience = Patience(PATIENCE, LEAST_S, limit_s)
    image = examined.get(examined.kinds("ntfs", settings.quick)[0])
    with Scratch() as scratch, line.lab() as lab:
        site = Site(scratch, lab, image, iscsi=True)
        site.allow_one()
        results = interleave(f"{group}, {line.name}", rounds, listings(site, patience, limit_s), "seconds")
    note = (
        f"Listing: `fls -r -m /` of ntfs, {iec(image.size_bytes)}, through a fresh mount, in up to {rounds} rounds. Caches were dropped before "
        f"every turn: at most {warmest(results):.1%} of the image was in memory when one began (fincore). {patience.said}. TCP has {tcp.USUAL}."
    )
    figures = grid.figures(PART, group, line.name, results, LISTED, note)
    if has_the_bar(line):
        pair = {name: [sample["seconds"] for sample in results[name]] for name in (OUR_MOUNT, PEERS_MOUNT)}
        what = f"mounting and listing over {line.name}, beside the initiator of libiscsi"
        figures.append(Figure(f"{PART}/bar-mount", what, "s", OUR_MOUNT, pair, "lower", 1 / BAR, note))
    return figures


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures. The longest delay, which has the goal, comes first."""
    delays, losses = ((10,), (1,)) if settings.quick else (lines.DELAYS_MS, lines.LOSSES_PERCENT)
    print(f"{PART}: delays {delays} ms, losses {losses} %", flush=True)
    columns: list[Callable[[], list[Figure]]] = []
    for delay, loss in itertools.product(reversed(delays), losses):
        line = lines.line("100mbit", delay, loss)
        over = f"over 100 Mbit/s, {delay} ms one way"
        columns.append(functools.partial(measure_acquisitions, f"Acquiring {over}", line, settings))
        columns.append(functools.partial(measure_listings, f"Mounting and listing {over}", line, settings))
    for line in (lines.MOBILE,) if settings.quick else lines.FIELD:
        columns.append(functools.partial(measure_acquisitions, "Acquiring in the field", line, settings))
        columns.append(functools.partial(measure_listings, "Mounting and listing in the field", line, settings))
    return while_time_lasts(columns)
