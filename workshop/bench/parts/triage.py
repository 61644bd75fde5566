"""Triage over a delayed link with unmodified tools: `fls -r -m /` and 200 × icat | sha256sum on our mount of a remote
image, beside nbdfuse, nbdkit's filters, iSCSI, a full copy first, and the local image."""

from __future__ import annotations

import dataclasses
import itertools
import time
import traceback
from collections.abc import Callable, Sequence

from bench.harness.rounds import interleave
from bench.images import examined
from bench.images.examined import ExaminedImage, FileSelection, ImageKind
from bench.images.site import (
    AGENT,
    COPY,
    FILTERS,
    ISCSI,
    LOCAL,
    OURS,
    Attach,
    CutOff,
    Line,
    Site,
    by_agent,
    by_cheetah,
    by_iscsi,
    copied,
    resident_share,
)
from bench.scratch import Scratch, drop_caches
from bench.settings import Settings
from bench.tools import examiner
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.units import MIB, iec

FILE_SYSTEMS = ("ntfs", "ext4")
DELAYS_MS = (0, 10, 20)
RATES = ("100mbit", "1gbit")
# Peers are cut off at this multiple of our time, a copy sooner, and at 1.5 times the fastest peer: a ratio to such a
# sample is a lower bound. --full waits longer. Our own limit, and that of a local tool, is where the bar is missed by
# a wide margin; exceeding it is a failure.
PATIENCE, BEHIND, LEAST_S = 6.0, 1.5, 3.0
COPY_PATIENCE = 2.0
FULL_LIMIT_S = 120.0
OURS_LIMIT_S = 600.0
ROUNDS_MAX = 3
# Over the slow link a round takes long and varies little, since the link dominates.
SLOW, SLOW_ROUNDS_MAX = "100mbit", 1
SLOW_FILTERS = ("cache filter, 1 MiB",)

LISTING_BAR = 1 / 5
EXTRACTION_BAR = 1.5
BYTES_BAR = 2.0

NOTE = (
    "Seconds count from the command that mounts (or copies). Extraction: 200 files one after the other, `icat | "
    "sha256sum`, which follow each other in the listing, as when a folder is extracted; it comes right after the "
    "listing, on the same mount. {limit}, which then counts as their time. Every listing and "
    "every hash was compared with those of the local image. Bytes are what the site's interface sent, until the "
    "tool was done; asked for: what The Sleuth Kit read of the local image, each byte counted once (strace). Our agent "
    "at the site is `cheetah serve`, an NBD server that compresses for clients that ask for it, started anew for each "
    "turn, on the clock; where it is not named the server is nbdkit."
)


class Limits:
    """When peers are cut off, in seconds, depending on others' times."""

    def __init__(self, settings: Settings) -> None:
        self._waits = settings.full
        self._ours: dict[str, float] = {}
        self._quickest_s = float("inf")

    @property
    def said(self) -> str:
        """Returns the limits for notes."""
        if self._waits:
            return f"Peers are cut off at {FULL_LIMIT_S:g} s"
        return (
            f"Filters are asked for the listing, and cut off at {PATIENCE:g} times our time or {BEHIND:g} times that of "
            f"the quickest, a copy at {COPY_PATIENCE:g} times ours"
        )

    def of(self, key: str) -> float:
        """Returns the limit for a step, the listing or the whole."""
        if self._waits or key not in self._ours:
            return FULL_LIMIT_S
        if key != "listed":
            return max(LEAST_S, COPY_PATIENCE * self._ours[key])
        return max(LEAST_S, min(PATIENCE * self._ours[key], BEHIND * self._quickest_s))

    def saw(self, name: str, times: dict[str, float]) -> None:
        """Records a contender's times."""
        if name == OURS:
            self._ours = {key: times[key] for key in ("listed", "extract", "whole")}
        elif name in FILTERS and not times["cut_off"]:
            self._quickest_s = min(self._quickest_s, times["listed"])


@dataclasses.dataclass(frozen=True)
class Cell:
    """An image behind a link."""

    kind: ImageKind
    line: Line

    @property
    def key(self) -> str:
        """Returns its key in ids of figures."""
        return f"triage/{self.kind.fs}-{iec(self.kind.size_bytes)}/{self.line.rate}/{self.line.delay_ms:g}ms"

    @property
    def name(self) -> str:
        """Returns its name in the report."""
        return f"{self.kind.fs}, {iec(self.kind.size_bytes)}, {self.line.name}"


def cells(settings: Settings) -> list[Cell]:
    """Returns the cells to measure: two images of each file system over each link, or one in a quick run."""
    if settings.quick:
        return [Cell(examined.kinds(fs, True)[0], Line("1gbit", 10)) for fs in FILE_SYSTEMS]
    lines = [Line(rate, delay) for rate, delay in itertools.product(RATES, DELAYS_MS)]
    return [Cell(kind, line) for fs in FILE_SYSTEMS for kind in examined.kinds(fs, False) for line in lines]


@dataclasses.dataclass
class Examination:
    """One contender's examination of an image: times, bytes, limits."""

    name: str
    image: ExaminedImage
    limit_of: Callable[[str], float]
    strict: bool
    times: dict[str, float]

    def extract(self, key: str, path: str, chosen: FileSelection) -> bool:
        """Extracts files and records the seconds; returns whether it finished."""
        limit_s = self.limit_of("extract")
        outcome = examiner.extraction(path, chosen.addresses, limit_s)
        self.times[key] = outcome.seconds
        if outcome.finished:
            examiner.check_hashes(self.name, examiner.hashes_of(outcome), chosen.sha256)
        return self._judge(outcome.finished, limit_s)

    def list(self, path: str, out: str) -> bool:
        """Lists the image and records the seconds; returns whether it finished."""
        limit_s = self.limit_of("listed")
        outcome = examiner.listing(path, limit_s, out)
        self.times["fls"] = outcome.seconds
        if outcome.finished:
            examiner.check_listing(self.name, out, self.image.listing_sha256)
        return self._judge(outcome.finished, limit_s)

    def _judge(self, finished: bool, limit_s: float) -> bool:
        if self.strict and not finished:
            raise BenchError(f"{self.name}: not done after {limit_s:.0f} s")
        self.times["cut_off"] = self.times.get("cut_off", 0) + (not finished)
        return finished


def examine(
    name: str,
    image: ExaminedImage,
    attach: Callable[[Scratch], str],
    sent_bytes: Callable[[], int],
    limit_of: Callable[[str], float],
    strict: bool = False,
    what: Sequence[str] = (),
) -> dict[str, float]:
    """Lets one contender list the image and then do other steps ("extract", "scattered"), from cold caches; returns
    its times. A contender that was too slow for a step skips the next."""
    times: dict[str, float] = {"cut_off": 0}
    work = Examination(name, image, limit_of, strict, times)
    with Scratch() as turn:
        drop_caches()
        times["resident"] = resident_share(image.path)
        before_bytes, start = sent_bytes(), time.perf_counter()
        try:
            path = attach(turn)
        except CutOff:
            waited_s = limit_of("whole")
            times.update(attach=waited_s, listed=waited_s, whole=waited_s, cut_off=1)
            return times
        times["attach"] = time.perf_counter() - start
        done = work.list(path, turn.path("bodyfile"))
        times["listed"] = times["attach"] + times["fls"]
        times["listing_bytes"] = sent_bytes() - before_bytes
        if done and "extract" in what:
            done = work.extract("extract", path, image.consecutive)
            times["whole"] = times["listed"] + times["extract"]
            times["all_bytes"] = sent_bytes() - before_bytes
        if done and "scattered" in what:
            work.extract("scattered", path, image.scattered)
    return times


def contenders(site: Site, line: Line, limits: Limits, settings: Settings) -> dict[str, Callable[[], dict[str, float]]]:
    """Returns all contenders of a round, ours first."""
    image = site.image

    def turn_of(name: str, attach: Attach, *what: str, strict: bool = False) -> Callable[[], dict[str, float]]:
        limit_of = (lambda key: OURS_LIMIT_S) if strict else limits.of

        def turn() -> dict[str, float]:
            site.stand_by()
            times = examine(name, image, lambda turn: attach(turn, site), site.sent_bytes, limit_of, strict, what)
            limits.saw(name, times)
            return times

        return turn

    every = ("extract", "scattered") if settings.full else ()
    filters = SLOW_FILTERS if line.rate == SLOW and not settings.full else tuple(reversed(FILTERS))
    everybody = {OURS: turn_of(OURS, by_cheetah, "extract", *every, strict=True)}
    everybody[AGENT] = turn_of(AGENT, by_agent, strict=True)
    everybody |= {name: turn_of(name, FILTERS[name], *every) for name in filters}
    if settings.full:
        everybody[ISCSI] = turn_of(ISCSI, by_iscsi, *every)
    everybody[COPY] = turn_of(COPY, lambda turn, site: copied(turn, site, limits.of("whole")), "extract")
    everybody[LOCAL] = turn_of(LOCAL, lambda turn, site: image.path, "extract", *every, strict=True)
    return everybody


def _samples(results: dict[str, list[dict[str, float]]], key: str, *names: str) -> dict[str, list[float]]:
    """Returns one value per round of each contender that has it."""
    chosen = {name: [times[key] for times in results.get(name, []) if key in times] for name in names}
    return {name: values for name, values in chosen.items() if values}


def figures_of(
    cell: Cell, image: ExaminedImage, results: dict[str, list[dict[str, float]]], limits: Limits
) -> list[Figure]:
    """Returns the figures of one cell."""
    near = cell.line.delay_ms == 0
    peers = (*FILTERS, ISCSI)
    note = NOTE.format(limit=limits.said)

    def figure(
        key: str,
        what: str,
        samples: dict[str, list[float]],
        bar: float | None,
        unit: str = "s",
        ours: str = OURS,
    ) -> Figure:
        return Figure(f"{cell.key}/{key}", f"{cell.name}: {what}", unit, ours, samples, "lower", bar, note)

    def moved(name: str, key: str, asked_bytes: int) -> dict[str, list[float]]:
        ours = [value / MIB for value in _samples(results, key, name)[name]]
        return {name: ours, "asked for": [asked_bytes / MIB] * len(ours)}

    fast = cell.line.rate == "1gbit"
    both_bytes = image.asked_bytes + image.consecutive.asked_bytes
    figures = [
        figure("listing", "listing", _samples(results, "listed", OURS, *peers), 1.0 if near else LISTING_BAR),
        figure(
            "listing-agent",
            "listing, our agent at the site",
            _samples(results, "listed", AGENT, *peers),
            None,
            ours=AGENT,
        ),
        figure("listing-copy", "listing, or a copy first", _samples(results, "listed", OURS, COPY), 1.0),
        figure(
            "local",
            "extraction, beside the image at hand",
            _samples(results, "extract", OURS, LOCAL),
            EXTRACTION_BAR if fast else None,
        ),
        figure("whole-copy", "listing and extraction, or a copy first", _samples(results, "whole", OURS, COPY), 1.0),
        figure(
            "listing-bytes",
            "bytes over the link for the listing",
            moved(OURS, "listing_bytes", image.asked_bytes),
            BYTES_BAR,
            "MiB",
        ),
        figure(
            "listing-bytes-agent",
            "bytes over the link for the listing, our agent at the site",
            moved(AGENT, "listing_bytes", image.asked_bytes),
            None,
            "MiB",
            AGENT,
        ),
        figure(
            "bytes", "bytes over the link, extraction included", moved(OURS, "all_bytes", both_bytes), BYTES_BAR, "MiB"
        ),
        figure("fls", "listing, without mounting", _samples(results, "fls", OURS, *peers), None),
        figure("extraction", "extraction", _samples(results, "extract", OURS, *peers), None),
        figure(
            "scattered",
            "extraction of scattered files, after that",
            _samples(results, "scattered", OURS, *peers, LOCAL),
            None,
        ),
    ]
    # Not every contender does every step.
    return [figure for figure in figures if len(figure.samples) > 1]


def measure_cell(cell: Cell, settings: Settings) -> list[Figure]:
    """Measures one cell; returns its figures."""
    image = examined.get(cell.kind)
    print(f"triage: {cell.name}; {image.lines} lines, {image.files} files", flush=True)
    with Scratch() as scratch, cell.line.lab() as lab:
        site, limits = Site(scratch, lab, image, iscsi=settings.full), Limits(settings)
        everybody = contenders(site, cell.line, limits, settings)
        show = ("listed", "extract", "whole", "cut_off")
        most = SLOW_ROUNDS_MAX if cell.line.rate == SLOW and not settings.full else ROUNDS_MAX
        results = interleave(cell.name, min(settings.rounds, most), everybody, show)
        warm = max(times["resident"] for rounds in results.values() for times in rounds)
        print(f"  at most {warm:.1%} of the image was in memory when a turn began", flush=True)
        return figures_of(cell, image, results, limits)


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures. A failing cell does not stop the others."""
    figures = []
    for cell in cells(settings):
        try:
            figures += measure_cell(cell, settings)
        except Exception as error:
            print(f"  {cell.name}: {error}", flush=True)
            if not isinstance(error, BenchError):
                traceback.print_exc()
    if not figures:
        raise BenchError("triage: nothing could be measured")
    return figures
