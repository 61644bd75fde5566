"""`cheetah triage --quick` of a remote image by 1 to 16 workers, over NBD and iSCSI, over delayed and lossy links and two
links of the field; beside the same triage through the peers' ways of reading, and after a full copy."""

from __future__ import annotations

import functools
import itertools
import os
import time
from collections.abc import Callable, Mapping

from bench.harness.figures import Metric
from bench.harness.rounds import interleave
from bench.images import examined
from bench.images.examined import ExaminedImage
from bench.images.site import CutOff, Site, by_iscsi, by_nbdfuse, copied, resident_share
from bench.parts.findings import command
from bench.remote import lines
from bench.remote.lines import FarLine
from bench.report import grid
from bench.scratch import Scratch, drop_caches, warmest
from bench.settings import Settings
from bench.tools.limited import run_limited
from cheetah.bench.figure import Figure
from cheetah.bench.units import MIB, iec

PART = "remote-triage"
FILE_SYSTEMS = ("ntfs", "ext4")
WORKERS = (1, 2, 4, 8, 16)
# One count for the peers, and for the lossy links: that of the document's best row.
USUAL = 8
ROUNDS_MAX = 3
LIMIT_S, LIMIT_QUICK_S = 600.0, 120.0
METRICS = (Metric("seconds", "elapsed", "s", "lower"), Metric("rate", "average throughput", "MiB/s"))

# Returns the source that a triage is given; it may attach or copy it first, on the clock.
Reach = Callable[[Scratch, Site], str]


def _copy_of(turn: Scratch, site: Site, limit_s: float) -> str:
    return copied(turn, site, limit_s)


OURS: dict[str, Reach] = {"NBD": lambda turn, site: site.uri, "iSCSI": lambda turn, site: site.iscsi_uri}
PEERS: dict[str, Reach] = {
    "NBD by nbdfuse": by_nbdfuse,
    "iSCSI by qemu-nbd and nbdfuse": by_iscsi,
    "a full copy by nbdcopy first": functools.partial(_copy_of, limit_s=LIMIT_S),
}


def one_turn(site: Site, reach: Reach, workers: int, limit_s: float) -> dict[str, float]:
    """Triages from cold caches: seconds, and MiB/s over the link, from the attaching command on."""
    with Scratch() as turn:
        drop_caches()
        resident = resident_share(site.image.path)
        site.stand_by()
        before_bytes, start = site.sent_bytes(), time.perf_counter()
        try:
            options = ("--quick", "--hash", "md5", "--workers", str(workers))
            argv = command(reach(turn, site), os.path.join(turn.disk_dir, "out"), *options)
            done = run_limited(site.enter(argv), limit_s)
        except CutOff:
            return {"seconds": limit_s, "resident": resident}
        if not done.finished:
            return {"seconds": limit_s, "resident": resident}
        seconds = time.perf_counter() - start
        return {
            "seconds": seconds,
            "rate": (site.sent_bytes() - before_bytes) / MIB / seconds,
            "resident": resident,
        }


def contenders(site: Site, counts: tuple[int, ...], limit_s: float) -> Mapping[str, Callable[[], dict[str, float]]]:
    """Returns the rows of one column: ours by protocol and workers, and every peer."""
    rows = {
        f"{way}, {count} workers": functools.partial(one_turn, site, reach, count, limit_s)
        for way, reach in OURS.items()
        for count in counts
    }
    return rows | {way: functools.partial(one_turn, site, reach, USUAL, limit_s) for way, reach in PEERS.items()}


def measure_column(
    image: ExaminedImage, group: str, line: FarLine, counts: tuple[int, ...], settings: Settings
) -> list[Figure]:
    """Returns the figures of one group over one link."""
    rounds = min(settings.rounds, ROUNDS_MAX)
    limit_s = LIMIT_QUICK_S if settings.quick else LIMIT_S
    with Scratch() as scratch, line.lab() as lab:
        site = Site(scratch, lab, image, iscsi=True)
        rows = contenders(site, counts, limit_s)
        results = interleave(f"{group}, {line.name}", rounds, rows, ("seconds", "rate"))
    warm = warmest(results)
    note = (
        f"In up to {rounds} rounds. `--quick --hash md5`; peers with {USUAL} workers. The site has nbdkit file and tgtd. Caches "
        f"were dropped before every turn: at most {warm:.1%} of the image was in memory when one began (fincore). A turn was cut off "
        f"at {limit_s:g} s, which then is its time."
    )
    return grid.figures(PART, group, line.name, results, METRICS, note)


def columns(settings: Settings) -> list[tuple[examined.ImageKind, str, FarLine, tuple[int, ...]]]:
    """Returns the image, the group, the link and the counts of workers of each column."""
    if settings.quick:
        kind = examined.kinds("ntfs", True)[0]
        return [
            (kind, "ntfs, by workers", lines.line("1gbit", 10), (1, 8)),
            (kind, "ntfs, by loss", lines.line("100mbit", 10, 1), (USUAL,)),
        ]
    found: list[tuple[examined.ImageKind, str, FarLine, tuple[int, ...]]] = []
    for fs, rate in itertools.product(FILE_SYSTEMS, lines.RATES):
        for kind in examined.kinds(fs, False):
            name = f"{fs}, {iec(kind.size_bytes)}, {lines.RATES[rate]}"
            found += [(kind, f"{name}, by workers", lines.line(rate, delay), WORKERS) for delay in lines.DELAYS_MS]
    for fs in FILE_SYSTEMS:
        kind = examined.kinds(fs, False)[0]
        for delay, loss in itertools.product(lines.DELAYS_MS, lines.LOSSES_PERCENT):
            found.append((kind, f"{fs}, by loss at {delay} ms", lines.line("100mbit", delay, loss), (USUAL,)))
        found += [(kind, f"{fs}, in the field", line, (USUAL,)) for line in lines.FIELD]
    return found


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures."""
    print(f"{PART}: triage of remote images, {len(columns(settings))} columns", flush=True)
    return [
        figure
        for kind, group, line, counts in columns(settings)
        for figure in measure_column(examined.get(kind), group, line, counts, settings)
    ]
