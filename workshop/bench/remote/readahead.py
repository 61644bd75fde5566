"""Read-ahead, read-behind and both of fixed sizes over iSCSI, as measured in 2016, and the mechanism of that measurement, a second
read after each read, beside one larger read."""

from __future__ import annotations

import functools
import itertools
import os
import sys

from bench.harness.figures import Metric
from bench.harness.rounds import interleave, while_time_lasts
from bench.images import examined
from bench.images.site import PORT, Attach, Site, by_cheetah, by_cheetah_over_iscsi
from bench.parts import readahead
from bench.remote import lines, tcp
from bench.report import grid, prefetching
from bench.scratch import Scratch, warmest
from bench.settings import Settings
from bench.tools import extend, peers
from bench.tools.endpoint import Endpoint
from cheetah.bench.figure import Figure
from cheetah.bench.units import KIB, iec

PART = "remote-readahead"
RATE = "1gbit"
QUICK_BYTES = 64 * KIB
ROUNDS_MAX = 3
# What a read fetches besides its own bytes: as many bytes as the size says, times these, ahead and behind.
DIRECTIONS = {"read-ahead": (1, 0), "read-behind": (0, 1), "read-ahead and read-behind": (1, 1)}
LARGER, SECOND = "by one larger read", "by separate reads"
METRICS = (Metric("seconds", "elapsed", "s", "lower"), Metric("rate", "average throughput", "MiB/s"))


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


def ways(iscsi: bool, quick: bool) -> dict[str, Attach]:
    """Returns the compared ways over one protocol."""
    found: dict[str, Attach] = {prefetching.NOTHING: by_extender(iscsi, 0, 0, False)}
    sizes = (QUICK_BYTES,) if quick else readahead.SIZES_BYTES
    for (direction, (ahead, behind)), how in itertools.product(DIRECTIONS.items(), (LARGER, SECOND)):
        for size in sizes:
            attach = by_extender(iscsi, ahead * size, behind * size, how == SECOND)
            found[f"{direction} {how}, {size // KIB} KiB"] = attach
    found["cheetah mount"] = by_cheetah_over_iscsi if iscsi else by_cheetah
    return found


def measure_delay(iscsi: bool, delay_ms: float, settings: Settings) -> list[Figure]:
    """Returns the figures at one delay, over one protocol."""
    rounds = min(settings.rounds, ROUNDS_MAX)
    image = examined.get(examined.kinds("ntfs", settings.quick)[0])
    line = lines.line(RATE, delay_ms)
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
        f"{rounds} rounds. Caches were dropped before every turn: at most {warm:.1%} of the image was in memory when one began (fincore). A "
        f"turn was cut off at {readahead.LIMIT_S:g} s, which then is its time. TCP has {tcp.USUAL}."
    )
    return grid.figures(PART, group, line.name, results, METRICS, note)


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures. His protocol comes first."""
    delays = (10,) if settings.quick else lines.DELAYS_MS
    print(f"{PART}: delays {delays} ms", flush=True)
    columns = itertools.product((True, False), delays)
    return while_time_lasts(functools.partial(measure_delay, iscsi, delay, settings) for iscsi, delay in columns)
