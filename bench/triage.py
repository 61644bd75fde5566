"""Triage over a delayed link with unmodified tools: `fls -r -m /` and 200 × icat | sha256sum on our mount of a remote
image, beside nbdfuse, nbdkit's filters, iSCSI, a full copy first, and the image at hand."""

from __future__ import annotations

import dataclasses
import itertools
import time
import traceback
from collections.abc import Callable

from bench import evidence, examiner
from bench.evidence import Chosen, Image, Kind
from bench.scratch import Scratch, drop_caches
from bench.settings import Settings
from bench.site import (
    COPY,
    FILTERS,
    ISCSI,
    LOCAL,
    OURS,
    Attach,
    CutOff,
    Line,
    Site,
    by_cheetah,
    by_iscsi,
    copied,
    resident_share,
)
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.rounds import interleave
from cheetah.bench.units import MIB, iec

FILE_SYSTEMS = ("ntfs", "ext4")
DELAYS_MS = (0, 10, 20)
RATES = ("100mbit", "1gbit")
# Peers are cut off here: what is divided by such a sample can only be better than it says. We ourselves and a tool at
# hand get so long that the figure is missed by far, and then it fails.
LIMIT_S = 45.0
FULL_LIMIT_S = 120.0
QUICK_LIMIT_S = 10.0
OURS_LIMIT_S = 600.0
ROUNDS_MAX = 3

LISTING_BAR = 1 / 5
EXTRACTION_BAR = 1.5
BYTES_BAR = 2.0

NOTE = (
    "Seconds count from the command that mounts (or copies). Extraction: 200 files one after the other, `icat | "
    "sha256sum`, which follow each other in the listing, as when a folder is extracted; it comes right after the "
    "listing, on the same mount. Peers are cut off at {limit:g} s, which then counts as their time. Every listing and "
    "every hash was compared with those of the local image. Bytes are what the site's interface sent, until the "
    "tool was done; asked for: what The Sleuth Kit read of the local image, each byte counted once (strace)."
)


def limit_of(settings: Settings) -> float:
    """When peers are cut off, in seconds."""
    if settings.quick:
        return QUICK_LIMIT_S
    return FULL_LIMIT_S if settings.full else LIMIT_S


@dataclasses.dataclass(frozen=True)
class Cell:
    """An image behind a link."""

    kind: Kind
    line: Line

    @property
    def key(self) -> str:
        """In the ids of figures."""
        return f"triage/{self.kind.fs}-{iec(self.kind.size_bytes)}/{self.line.rate}/{self.line.delay_ms:g}ms"

    @property
    def name(self) -> str:
        """In the report."""
        return f"{self.kind.fs}, {iec(self.kind.size_bytes)}, {self.line.name}"


def cells(settings: Settings) -> list[Cell]:
    """What is measured: all of it with `--full`, otherwise for each file system the small image near and at 10 ms over
    the fast link, the large one at 20 ms over that and at 10 ms over the slow one."""
    chosen = []
    for fs in FILE_SYSTEMS:
        small, large = evidence.kinds(fs, settings.quick)
        if settings.full:
            lines = [Line(rate, delay) for rate, delay in itertools.product(RATES, DELAYS_MS)]
            chosen += [Cell(kind, line) for kind in (small, large) for line in lines]
        elif settings.quick:
            chosen += [Cell(small, Line("1gbit", 10))]
        else:
            chosen += [Cell(small, Line("1gbit", 0)), Cell(small, Line("1gbit", 10))]
            chosen += [Cell(large, Line("1gbit", 20)), Cell(large, Line("100mbit", 10))]
    return chosen


@dataclasses.dataclass
class Examination:
    """One contender examining an image: the clock, the bytes, the limit."""

    who: str
    image: Image
    limit_s: float
    strict: bool
    told: dict[str, float]

    def extract(self, key: str, path: str, chosen: Chosen) -> bool:
        """Extracts files; notes the seconds. Says whether it was finished."""
        outcome = examiner.extraction(path, chosen.addresses, self.limit_s)
        self.told[key] = outcome.seconds
        if outcome.finished:
            examiner.check_hashes(self.who, examiner.hashes_of(outcome), chosen.sha256)
        return self._judge(outcome.finished)

    def list(self, path: str, out: str) -> bool:
        """Lists the image; notes the seconds. Says whether it was finished."""
        outcome = examiner.listing(path, self.limit_s, out)
        self.told["fls"] = outcome.seconds
        if outcome.finished:
            examiner.check_listing(self.who, out, self.image.listing_sha256)
        return self._judge(outcome.finished)

    def _judge(self, finished: bool) -> bool:
        if self.strict and not finished:
            raise BenchError(f"{self.who}: not done after {self.limit_s:.0f} s")
        self.told["cut_off"] = self.told.get("cut_off", 0) + (not finished)
        return finished


def examine(
    who: str, image: Image, attach: Callable[[Scratch], str], sent_bytes: Callable[[], int], limit_s: float,
    strict: bool = False,
) -> dict[str, float]:
    """Has one contender list the image and extract files, from cold caches, and tells how it went."""
    told: dict[str, float] = {}
    work = Examination(who, image, limit_s, strict, told)
    with Scratch() as turn:
        drop_caches()
        told["resident"] = resident_share(image.path)
        before_bytes, start = sent_bytes(), time.perf_counter()
        try:
            path = attach(turn)
        except CutOff:
            told.update(attach=limit_s, listed=limit_s, whole=limit_s, cut_off=1)
            return told
        told["attach"] = time.perf_counter() - start
        work.list(path, turn.path("bodyfile"))
        told["listed"] = told["attach"] + told["fls"]
        told["listing_bytes"] = sent_bytes() - before_bytes
        work.extract("extract", path, image.consecutive)
        told["whole"] = told["listed"] + told["extract"]
        told["all_bytes"] = sent_bytes() - before_bytes
        # Who was too slow for what follows each other is not asked for more.
        if not told["cut_off"]:
            work.extract("scattered", path, image.scattered)
    return told


def contenders(site: Site, settings: Settings) -> dict[str, Callable[[], dict[str, float]]]:
    """Everybody who is asked in a round."""
    limit_s = limit_of(settings)
    image = site.image

    def asked(who: str, attach: Attach, limit_s: float, strict: bool = False) -> Callable[[], dict[str, float]]:
        return lambda: examine(who, image, lambda turn: attach(turn, site), site.sent_bytes, limit_s, strict)

    everybody = {OURS: asked(OURS, by_cheetah, OURS_LIMIT_S, True)}
    everybody |= {name: asked(name, attach, limit_s) for name, attach in FILTERS.items()}
    everybody[ISCSI] = asked(ISCSI, by_iscsi, limit_s)
    everybody[COPY] = asked(COPY, lambda turn, site: copied(turn, site, limit_s), limit_s)
    everybody[LOCAL] = asked(LOCAL, lambda turn, site: image.path, OURS_LIMIT_S, True)
    return everybody


def _samples(results: dict[str, list[dict[str, float]]], key: str, *names: str) -> dict[str, list[float]]:
    """One value a round of each contender that has it."""
    chosen = {name: [told[key] for told in results.get(name, []) if key in told] for name in names}
    return {name: values for name, values in chosen.items() if values}


def figures_of(cell: Cell, image: Image, results: dict[str, list[dict[str, float]]], limit_s: float) -> list[Figure]:
    """What one cell says."""
    near = cell.line.delay_ms == 0
    peers = (OURS, *FILTERS, ISCSI)
    note = NOTE.format(limit=limit_s)

    def figure(key: str, what: str, samples: dict[str, list[float]], bar: float | None, unit: str = "s") -> Figure:
        return Figure(f"{cell.key}/{key}", f"{cell.name}: {what}", unit, OURS, samples, "lower", bar, note)

    def moved(key: str, asked_bytes: int) -> dict[str, list[float]]:
        ours = [value / MIB for value in _samples(results, key, OURS)[OURS]]
        return {OURS: ours, "asked for": [asked_bytes / MIB] * len(ours)}

    fast = cell.line.rate == "1gbit"
    both_bytes = image.asked_bytes + image.consecutive.asked_bytes
    return [
        figure("listing", "listing", _samples(results, "listed", *peers), 1.0 if near else LISTING_BAR),
        figure("listing-copy", "listing, or a copy first", _samples(results, "listed", OURS, COPY), 1.0),
        figure("local", "extraction, beside the image at hand", _samples(results, "extract", OURS, LOCAL),
               EXTRACTION_BAR if fast else None),
        figure("whole-copy", "listing and extraction, or a copy first", _samples(results, "whole", OURS, COPY), 1.0),
        figure("listing-bytes", "bytes over the link for the listing", moved("listing_bytes", image.asked_bytes),
               BYTES_BAR, "MiB"),
        figure("bytes", "bytes over the link, extraction included", moved("all_bytes", both_bytes), BYTES_BAR, "MiB"),
        figure("fls", "listing, without mounting", _samples(results, "fls", *peers), None),
        figure("extraction", "extraction", _samples(results, "extract", *peers), None),
        figure("scattered", "extraction of scattered files, after that",
               _samples(results, "scattered", *peers, LOCAL), None),
    ]


def measure_cell(cell: Cell, settings: Settings) -> list[Figure]:
    """The figures of one cell."""
    image = evidence.get(cell.kind)
    print(f"triage: {cell.name}; {image.lines} lines, {image.files} files", flush=True)
    with Scratch() as scratch, cell.line.lab() as lab:
        site = Site(scratch, lab, image, iscsi=True)
        everybody = contenders(site, settings)
        show = ("listed", "extract", "whole", "cut_off")
        results = interleave(cell.name, min(settings.rounds, ROUNDS_MAX), everybody, show)
        warm = max(told["resident"] for rounds in results.values() for told in rounds)
        print(f"  at most {warm:.1%} of the image was in memory when a turn began", flush=True)
        return figures_of(cell, image, results, limit_of(settings))


def measure(settings: Settings) -> list[Figure]:
    """Runs all of it and returns the figures; a cell that fails costs only itself."""
    figures = []
    for cell in cells(settings):
        try:
            figures += measure_cell(cell, settings)
        except Exception as error:  # pylint: disable=broad-exception-caught
            print(f"  {cell.name}: {error}", flush=True)
            if not isinstance(error, BenchError):
                traceback.print_exc()
    if not figures:
        raise BenchError("triage: nothing could be measured")
    return figures
