"""Read-ahead and read-behind of fixed sizes, and workers, over delayed links: repeats Makowski's measurements at the
NFI of 2016 ("Performance measurement and tuning of remote acquisition"), beside Cheetah."""

from __future__ import annotations

import functools
import os
import shutil
import sys
import time
from collections.abc import Callable

from bench.harness.rounds import interleave
from bench.images import examined
from bench.images.examined import ExaminedImage
from bench.images.site import OURS, PORT, Attach, CutOff, Line, Site, by_cheetah, resident_share
from bench.report import prefetching
from bench.scratch import Scratch, drop_caches, warmest
from bench.settings import Settings
from bench.tools import examiner, extend, peers
from bench.tools.endpoint import Endpoint
from bench.tools.limited import run_limited
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.units import KIB, MIB, iec

RATE = "1gbit"
DELAYS_MS = (0, 10, 20)
SIZES_BYTES = (4 * KIB, 8 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB)
WORKERS = (1, 2, 4, 8, 16)
FILES = 60
ROUNDS_MAX = 3
LIMIT_S = 180.0

# $1 is the image, $2 the number of processes; the addresses come on stdin.
PARALLEL = 'xargs -P "$2" -I {} bash -c \'set -o pipefail; icat "$0" "$1" | sha256sum\' "$1" {}'


def by_extender(ahead: int, behind: int) -> Attach:
    """Attaches through a server on the examiner's machine that extends reads, with nbdfuse on it."""

    def attach(scratch: Scratch, site: Site) -> str:
        socket = scratch.path("socket")
        host = site.uri.removeprefix("nbd://").partition(":")[0]
        argv = [sys.executable, "-S", extend.__file__, host, str(PORT), socket, str(ahead), str(behind)]
        process = scratch.start("extend.py", site.enter(argv))
        process.wait_until(lambda: "ready" in process.printed(), "word that it is ready")
        endpoint = Endpoint("extend.py", f"nbd+unix:///?socket={socket}", [process])
        # It answers one request at a time on each connection.
        return str(peers.nbdfuse(scratch, endpoint, site.enter, max(WORKERS))[1])

    return attach


def sizes() -> dict[str, Attach]:
    """Returns the compared ways of prefetching, by their names in tables."""
    ways: dict[str, Attach] = {prefetching.NOTHING: by_extender(0, 0)}
    ways |= {prefetching.ahead(iec(size)): by_extender(size, 0) for size in SIZES_BYTES}
    ways |= {prefetching.behind(iec(size)): by_extender(0, size) for size in SIZES_BYTES}
    ways[OURS] = by_cheetah
    return ways


def one_turn(site: Site, attach: Attach, work: Callable[[Scratch, str], None]) -> dict[str, float]:
    """Attaches from cold caches and works: seconds and MiB/s over the link, from the attaching command on."""
    with Scratch() as turn:
        drop_caches()
        resident = resident_share(site.image.path)
        before_bytes, start = site.sent_bytes(), time.perf_counter()
        try:
            work(turn, attach(turn, site))
        except CutOff:
            return {"seconds": LIMIT_S, "resident": resident}
        seconds = time.perf_counter() - start
        sent_bytes = site.sent_bytes() - before_bytes
        return {"seconds": seconds, "rate": sent_bytes / MIB / seconds, "resident": resident}


def list_and_extract(image: ExaminedImage, turn: Scratch, path: str) -> None:
    """Lists the image, then extracts files one after the other."""
    out = turn.path("bodyfile")
    listed = examiner.listing(path, LIMIT_S, out)
    extracted = examiner.extraction(path, image.scattered.addresses[:FILES], LIMIT_S)
    if not listed.finished or not extracted.finished:
        raise CutOff(path)
    examiner.check_listing(path, out, image.listing_sha256)
    examiner.check_hashes(path, examiner.hashes_of(extracted), image.scattered.sha256[:FILES])


def extract_at_once(image: ExaminedImage, workers: int, turn: Scratch, path: str) -> None:
    """Extracts files concurrently, each by its own process."""
    given = examiner.as_input(image.scattered.addresses[:FILES])
    extracted = run_limited(["bash", "-c", PARALLEL, "extract", path, str(workers)], LIMIT_S, given)
    if not extracted.finished:
        raise CutOff(path)
    examiner.check_hashes(path, sorted(examiner.hashes_of(extracted)), sorted(image.scattered.sha256[:FILES]))


def _figures(key: str, what: str, ours: str, results: dict[str, list[dict[str, float]]]) -> list[Figure]:
    """Returns elapsed time and throughput of all contenders at one delay."""
    seconds = {name: [sample["seconds"] for sample in rounds] for name, rounds in results.items()}
    rates = {name: [sample["rate"] for sample in rounds if "rate" in sample] for name, rounds in results.items()}
    rates = {name: values for name, values in rates.items() if values}
    warm = warmest(results)
    note = (
        f"Caches were dropped before every turn: at most {warm:.1%} of the image was in memory when one began "
        "(fincore), and no mount lived longer than a turn. "
        f"A turn was cut off at {LIMIT_S:g} s, which then is its time."
    )
    return [
        Figure(f"readahead/{key}/seconds", f"{what}: elapsed", "s", ours, seconds, "lower", None, note),
        Figure(f"readahead/{key}/rate", f"{what}: average throughput", "MiB/s", ours, rates, "higher", None, note),
    ]


def measure_delay(image: ExaminedImage, delay_ms: float, settings: Settings) -> list[Figure]:
    """Measures everything at one delay."""
    rounds = min(settings.rounds, ROUNDS_MAX)
    line = Line(RATE, delay_ms)
    figures = []
    with Scratch() as scratch, line.lab() as lab:
        site = Site(scratch, lab, image)
        ways = sizes()
        if settings.quick:
            chosen = (prefetching.NOTHING, prefetching.ahead("64KiB"), prefetching.behind("64KiB"), OURS)
            ways = {name: ways[name] for name in chosen}
        work = functools.partial(list_and_extract, image)
        turns = {name: functools.partial(one_turn, site, attach, work) for name, attach in ways.items()}
        results = interleave(f"prefetching, {delay_ms:g} ms", rounds, turns, ("seconds", "rate"))
        figures += _figures(f"sizes/{delay_ms:g}ms", f"listing and {FILES} files, {line.name}", OURS, results)
        counts = (1, 8) if settings.quick else WORKERS
        turns = {
            prefetching.at_once(way, count): functools.partial(
                one_turn, site, ways[way], functools.partial(extract_at_once, image, count)
            )
            for way in (prefetching.NOTHING, OURS)
            for count in counts
        }
        results = interleave(f"workers, {delay_ms:g} ms", rounds, turns, ("seconds", "rate"))
        ours = prefetching.at_once(OURS, counts[-1])
        figures += _figures(f"workers/{delay_ms:g}ms", f"{FILES} files, several at once, {line.name}", ours, results)
    return figures


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures."""
    image = examined.get(examined.kinds("ntfs", settings.quick)[0])
    print(f"readahead: {os.path.basename(image.path)}, {image.lines} lines, {FILES} files, {RATE}", flush=True)
    if not shutil.which("fincore"):
        raise BenchError("fincore is not installed; it is part of util-linux")
    return [figure for delay_ms in DELAYS_MS for figure in measure_delay(image, delay_ms, settings)]
