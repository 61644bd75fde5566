"""Read-ahead and read-behind of fixed sizes over iSCSI, as measured in 2016, and the mechanism of that measurement, a second read
after each read, beside one larger read."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable

from bench.harness.figures import Metric
from bench.harness.rounds import interleave
from bench.images import examined
from bench.images.site import PORT, Site, by_cheetah
from bench.parts import readahead
from bench.remote import lines
from bench.report import grid, prefetching
from bench.scratch import Scratch, warmest
from bench.settings import Settings
from bench.tools import cheetah, extend, peers
from bench.tools.endpoint import Endpoint
from cheetah.bench.figure import Figure
from cheetah.bench.units import KIB, iec

PART = "remote-readahead"
RATE = "1gbit"
QUICK_BYTES = 64 * KIB
ROUNDS_MAX = 3
METRICS = (Metric("seconds", "elapsed", "s", "lower"), Metric("rate", "average throughput", "MiB/s"))

Attach = Callable[[Scratch, Site], str]


def by_extender(iscsi: bool, ahead: int, behind: int, second: bool) -> Attach:
    """Attaches through a server on the examiner's machine that extends reads, with nbdfuse on it. The far end is NBD, or iSCSI
    by qemu-nbd with the initiator of libiscsi."""

    def attach(scratch: Scratch, site: Site) -> str:
        host = site.uri.removeprefix("nbd://").partition(":")[0]
        if iscsi:
            host = scratch.path("initiator")
            argv = [
                "qemu-nbd",
                "--format=raw",
                "--read-only",
                "--persistent",
                "--shared=0",
                f"--socket={host}",
                site.iscsi_uri,
            ]
            initiator = scratch.start("qemu-nbd", site.enter(argv))
            initiator.wait_until(lambda: os.path.exists(host), "socket")
        socket = scratch.path("socket")
        argv = [sys.executable, "-S", extend.__file__, host, str(PORT), socket, str(ahead), str(behind)]
        process = scratch.start("extend.py", site.enter([*argv, *(["second"] if second else [])]))
        process.wait_until(lambda: "ready" in process.printed(), "word that it is ready")
        endpoint = Endpoint("extend.py", f"nbd+unix:///?socket={socket}", [process])
        return str(peers.nbdfuse(scratch, endpoint, site.enter, 1)[1])

    return attach


def _mounted_unit(scratch: Scratch, site: Site) -> str:
    return str(cheetah.mount(scratch, site.iscsi_uri, enter=site.enter)[1])


def ways(iscsi: bool, quick: bool) -> dict[str, Attach]:
    """Returns the compared ways over one protocol."""
    found: dict[str, Attach] = {prefetching.NOTHING: by_extender(iscsi, 0, 0, False)}
    for size in (QUICK_BYTES,) if quick else readahead.SIZES_BYTES:
        for second in (False, True):
            said = ", a second read" if second else ", one larger read"
            found[prefetching.ahead(iec(size)) + said] = by_extender(iscsi, size, 0, second)
            found[prefetching.behind(iec(size)) + said] = by_extender(iscsi, 0, size, second)
    found["cheetah mount"] = _mounted_unit if iscsi else by_cheetah
    return found


def measure_delay(delay_ms: float, settings: Settings) -> list[Figure]:
    """Returns the figures at one delay, over both protocols."""
    rounds = min(settings.rounds, ROUNDS_MAX)
    image = examined.get(examined.kinds("ntfs", settings.quick)[0])
    line = lines.line(RATE, delay_ms)
    figures = []
    for iscsi in (True, False):
        group = "Over iSCSI" if iscsi else "Over NBD"
        with Scratch() as scratch, line.lab() as lab:
            site = Site(scratch, lab, image, iscsi=True)
            work = functools.partial(readahead.list_and_extract, image)
            turns = {
                name: functools.partial(readahead.one_turn, site, attach, work)
                for name, attach in ways(iscsi, settings.quick).items()
            }
            results = interleave(f"{group}, {line.name}", rounds, turns, ("seconds", "rate"))
        warm = warmest(results)
        note = (
            f"{group}: `fls -r -m /` and {readahead.FILES} × `icat` of ntfs, {iec(image.size_bytes)}, over {lines.RATES[RATE]}, in up to "
            f"{rounds} rounds. Caches were dropped before every turn: at most {warm:.1%} of the image was in memory when one began. A "
            f"turn was cut off at {readahead.LIMIT_S:g} s, which then is its time."
        )
        figures += grid.figures(PART, group, line.name, results, METRICS, note)
    return figures


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures."""
    delays = (10,) if settings.quick else lines.DELAYS_MS
    print(f"{PART}: delays {delays} ms", flush=True)
    return [figure for delay_ms in delays for figure in measure_delay(delay_ms, settings)]
