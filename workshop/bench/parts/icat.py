"""What a file costs through a mount: 200 × `icat | sha256sum` right after a listing, and the same files once more, on our
mount of a remote image beside the image at hand."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Sequence

from bench.harness.cases import chosen
from bench.harness.rounds import interleave
from bench.images import examined
from bench.images.examined import ExaminedImage, ImageKind
from bench.images.site import LOCAL, OURS, Attach, Line, Site, by_cheetah, resident_share
from bench.parts.triage import EXTRACTION_BAR, FILE_SYSTEMS, Examination
from bench.scratch import Scratch, drop_caches, warmest
from bench.settings import Settings
from cheetah.bench.figure import Figure

RATE = "1gbit"
DELAYS_MS = (10, 20)
LIMIT_S = 120.0
# So that what the mount fetches ahead of its own accord counts with the files before, not with those after.
QUIET_S = 0.5
# What a file may take longer than on the image at hand.
FILE_MS_MAX = 1.0
ALLOWED = "allowed"
# The key of a step, and what it extracts.
STEPS = {"after": "files after the listing", "again": "the same files again"}


@dataclasses.dataclass(frozen=True)
class Cell:
    """An image behind a link."""

    kind: ImageKind
    line: Line

    def __str__(self) -> str:
        return f"{self.kind.name}, {self.line.name}"

    @property
    def key(self) -> str:
        """Returns its key in ids of figures."""
        return f"icat/{self.kind.name}/{self.line.delay_ms:g}ms"


def cells(settings: Settings) -> list[Cell]:
    """Returns the cells: the small images over each delay, the large ones, too, with --full; one in a quick run."""
    if settings.quick:
        return [Cell(examined.kinds("ntfs", True)[0], Line(RATE, DELAYS_MS[0]))]
    sizes = 2 if settings.full else 1
    kinds = [kind for fs in FILE_SYSTEMS for kind in examined.kinds(fs, False)[:sizes]]
    return [Cell(kind, Line(RATE, delay_ms)) for kind in kinds for delay_ms in DELAYS_MS]


def one_turn(name: str, site: Site, attach: Attach) -> dict[str, float]:
    """Attaches from cold caches, lists the image, and extracts files twice; returns the seconds of both extractions and the
    requests that reached the site meanwhile."""
    site.stand_by()
    times: dict[str, float] = {}
    work = Examination(name, site.image, lambda step: LIMIT_S, True, times)
    with Scratch() as turn:
        drop_caches()
        times["resident"] = resident_share(site.image.path)
        path = attach(turn, site)
        work.list(path, turn.path("bodyfile"))
        for step in STEPS:
            before = site.requests()
            work.extract(step, path, site.image.consecutive)
            times[f"{step}_requests"] = site.requests() - before
            time.sleep(QUIET_S)
    return times


def files_ms(results: dict[str, list[dict[str, float]]], step: str, files: int) -> list[float]:
    """Returns what a file took longer through the mount than on the image at hand, in ms, for each round; 0 if it took less."""
    pairs = zip(results[OURS], results[LOCAL], strict=True)
    return [max(0.0, 1000 * (ours[step] - local[step]) / files) for ours, local in pairs]


def figures_of(cell: Cell, files: int, results: dict[str, list[dict[str, float]]]) -> list[Figure]:
    """Returns the figures of a cell."""
    note = (
        f"{files} files, which follow each other in the listing, one after the other by `icat | sha256sum`: first right after "
        "`fls -r -m /` on the same mount, then the same files again. Every listing and every hash was compared with those of the "
        "local image. Requests of NBD are counted by the site's nbdkit (its log filter), whatever they ask for, and those that the "
        "mount makes ahead count, too. Caches were dropped before every turn: at most "
        f"{warmest(results):.1%} of the image was in memory when one began (fincore)."
    )

    def figure(key: str, what: str, unit: str, samples: dict[str, list[float]], bar: float | None) -> Figure:
        return Figure(f"{cell.key}/{key}", f"{cell}: {what}", unit, OURS, samples, "lower", bar, note)

    def allowed(values: Sequence[float], most: float) -> dict[str, list[float]]:
        return {OURS: list(values), ALLOWED: [most] * len(values)}

    found = []
    for step, what in STEPS.items():
        seconds = {name: [times[step] for times in results[name]] for name in (OURS, LOCAL)}
        found.append(figure(step, f"{what}, beside the image at hand", "s", seconds, EXTRACTION_BAR))
        beyond = allowed(files_ms(results, step, files), FILE_MS_MAX)
        found.append(figure(f"{step}-ms", f"{what}: ms a file beyond the image at hand", "ms", beyond, 1.0))
    asked = {step: [times[f"{step}_requests"] for times in results[OURS]] for step in STEPS}
    # A ratio to none does not exist, so one is added to both sides.
    none = allowed([count + 1 for count in asked["again"]], 1.0)
    found.append(figure("again-requests", f"{STEPS['again']}: requests that travel, plus one", "requests", none, 1.0))
    each = {OURS: [count / files for count in asked["after"]]}
    found.append(figure("after-requests", f"{STEPS['after']}: requests that travel, per file", "requests", each, None))
    return found


def measure_cell(cell: Cell, image: ExaminedImage, settings: Settings) -> list[Figure]:
    """Measures one cell; returns its figures."""
    with Scratch() as scratch, cell.line.lab() as lab:
        site = Site(scratch, lab, image, counted=True)
        ways: dict[str, Attach] = {OURS: by_cheetah, LOCAL: lambda turn, site: site.image.path}
        turns = {name: functools.partial(one_turn, name, site, attach) for name, attach in ways.items()}
        show = (*STEPS, *(f"{step}_requests" for step in STEPS))
        results = interleave(str(cell), settings.rounds, turns, show)
        return figures_of(cell, len(image.consecutive.addresses), results)


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures."""
    wanted = chosen(cells(settings), settings)
    print(f"icat: files through a mount over {RATE}, {len(wanted)} cells", flush=True)
    return [figure for cell in wanted for figure in measure_cell(cell, examined.get(cell.kind), settings)]
