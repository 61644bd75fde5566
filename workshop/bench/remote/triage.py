"""`cheetah triage --quick` of a remote image by 1 to 16 workers, over NBD and iSCSI, over delayed and lossy links and two
links of the field; over lossy links by NBD over one connection, too; beside the same triage through the peers' ways of reading,
and after a full copy."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import time
from collections.abc import Callable, Mapping

from bench.harness.figures import Metric
from bench.harness.patience import Patience
from bench.harness.rounds import interleave, while_time_lasts
from bench.images import examined
from bench.images.site import CutOff, Site, by_iscsi, by_nbdfuse, copied, resident_share
from bench.parts.findings import command
from bench.remote import lines, tcp
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
# Peers are cut off at this multiple of our longest time in the column.
PATIENCE, LEAST_S = 6.0, 30.0
# The goal over the worst link: ours beside the initiator of the protocol that examiners use.
BAR, BAR_DELAY_MS, BAR_LOSS_PERCENT = 5.0, 20, 1
METRICS = (Metric("seconds", "elapsed", "s", "lower"), Metric("rate", "average throughput", "MiB/s"))

# Returns the source that a triage is given; it may attach or copy it first, on the clock, up to a limit.
Reach = Callable[[Scratch, Site, float], str]
Turn = Callable[[], dict[str, float]]

OURS: dict[str, Reach] = {
    "NBD": lambda turn, site, limit_s: site.uri,
    "iSCSI": lambda turn, site, limit_s: site.iscsi_uri,
}
OVER_ONE = "NBD over one connection"
BY_INITIATOR = "iSCSI by qemu-nbd and nbdfuse"
PEERS: dict[str, Reach] = {
    "NBD by nbdfuse": lambda turn, site, limit_s: by_nbdfuse(turn, site),
    BY_INITIATOR: lambda turn, site, limit_s: by_iscsi(turn, site),
    "a full copy by nbdcopy first": copied,
}


@dataclasses.dataclass(frozen=True)
class Column:
    """What is compared over one link: the image, the group, the counts of workers, and whether one connection is compared."""

    kind: examined.ImageKind
    group: str
    line: FarLine
    counts: tuple[int, ...]
    over_one: bool = False

    @property
    def has_the_bar(self) -> bool:
        """Whether the goal is set for it."""
        return self.over_one and self.line == lines.line("100mbit", BAR_DELAY_MS, BAR_LOSS_PERCENT)


def one_turn(site: Site, reach: Reach, workers: int, limit_s: float) -> dict[str, float]:
    """Triages from cold caches: seconds, and MiB/s over the link, from the attaching command on."""
    with Scratch() as turn:
        drop_caches()
        resident = resident_share(site.image.path)
        site.stand_by()
        before_bytes, start = site.sent_bytes(), time.perf_counter()
        try:
            options = ("--quick", "--hash", "md5", "--workers", str(workers))
            argv = command(reach(turn, site, limit_s), os.path.join(turn.disk_dir, "out"), *options)
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


def named(way: str, count: int) -> str:
    """Returns the name of a row of ours."""
    return f"{way}, {count} worker{'s' if count > 1 else ''}"


def contenders(site: Site, column: Column, patience: Patience, limit_s: float) -> Mapping[str, Turn]:
    """Returns the rows of one column: ours by protocol and workers, and every peer."""

    def ours(reach: Reach, count: int) -> dict[str, float]:
        sample = one_turn(site, reach, count, limit_s)
        patience.saw(sample["seconds"])
        return sample

    def theirs(reach: Reach) -> dict[str, float]:
        return one_turn(site, reach, USUAL, patience.limit_s)

    rows = {
        named(way, count): functools.partial(ours, reach, count)
        for way, reach in OURS.items()
        for count in column.counts
    }
    if column.over_one:
        rows[named(OVER_ONE, USUAL)] = functools.partial(ours, lambda turn, site, limit_s: site.one_uri, USUAL)
    return rows | {way: functools.partial(theirs, reach) for way, reach in PEERS.items()}


def measure_column(column: Column, settings: Settings) -> list[Figure]:
    """Returns the figures of one group over one link."""
    rounds = min(settings.rounds, ROUNDS_MAX)
    limit_s = LIMIT_QUICK_S if settings.quick else LIMIT_S
    patience = Patience(PATIENCE, LEAST_S, limit_s)
    group, line = column.group, column.line
    image = examined.get(column.kind)
    with Scratch() as scratch, line.lab() as lab:
        site = Site(scratch, lab, image, iscsi=True)
        if column.over_one:
            site.allow_one()
        rows = contenders(site, column, patience, limit_s)
        results = interleave(f"{group}, {line.name}", rounds, rows, ("seconds", "rate"))
    note = (
        f"In up to {rounds} rounds. `--quick --hash md5`; peers with {USUAL} workers. The site has nbdkit file and tgtd. Caches "
        f"were dropped before every turn: at most {warmest(results):.1%} of the image was in memory when one began (fincore). "
        f"{patience.said}. TCP has {tcp.USUAL}."
    )
    figures = grid.figures(PART, group, line.name, results, METRICS, note)
    if column.has_the_bar:
        ours = named("NBD", USUAL)
        pair = {name: [sample["seconds"] for sample in results[name]] for name in (ours, BY_INITIATOR)}
        what = f"{column.kind.fs} over {line.name}, beside the initiator of libiscsi"
        figures.append(Figure(f"{PART}/bar-{column.kind.fs}", what, "s", ours, pair, "lower", 1 / BAR, note))
    return figures


def columns(settings: Settings) -> list[Column]:
    """Returns all columns: small images and the field first, as they take the least time."""
    if settings.quick:
        kind = examined.kinds("ntfs", True)[0]
        return [
            Column(kind, "ntfs, by workers", lines.line("1gbit", 10), (1, 8)),
            Column(kind, "ntfs, by loss", lines.line("100mbit", 10, 1), (USUAL,), over_one=True),
        ]
    found: list[Column] = []
    for large, fs, rate in itertools.product((False, True), FILE_SYSTEMS, lines.RATES):
        kind = examined.kinds(fs, False)[large]
        group = f"{fs}, {iec(kind.size_bytes)}, {lines.RATES[rate]}, by workers"
        found += [Column(kind, group, lines.line(rate, delay), WORKERS) for delay in lines.DELAYS_MS]
        if large or rate == "1gbit":
            continue
        for delay in reversed(lines.DELAYS_MS):
            over = [lines.line("100mbit", delay, loss) for loss in lines.LOSSES_PERCENT]
            found += [Column(kind, f"{fs}, by loss at {delay} ms", line, (USUAL,), over_one=True) for line in over]
        found += [Column(kind, f"{fs}, in the field", line, (USUAL,)) for line in lines.FIELD]
    return found


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures."""
    found = columns(settings)
    print(f"{PART}: triage of remote images, {len(found)} columns", flush=True)
    return while_time_lasts(functools.partial(measure_column, column, settings) for column in found)
