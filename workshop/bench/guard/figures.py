"""What the guard measures: for each part of Cheetah, a figure that its users would feel.

A figure is prepared once for each build, and then measured in turns. Both builds' servers run all the time, and are idle
while the other build is measured.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from bench.guard.builds import Build
from bench.harness import fio
from bench.harness.fio import Job
from bench.harness.process import free_port, memory_peak_bytes, timed
from bench.images import examined
from bench.images.acquired import AcquiredImage, Images
from bench.images.site import Line, Site
from bench.parts import seal
from bench.scratch import Scratch, drop_caches, write_random
from bench.settings import Settings
from bench.tools import cheetah, examiner, room
from bench.tools.endpoint import Endpoint
from cheetah.bench.failure import BenchError
from cheetah.bench.units import KIB, MIB

# Measures once; returns a value.
Turn = Callable[[], float]

STARTS = 40
EXTRACTED_FILES = 20
DELAY_MS = 10


@dataclasses.dataclass(frozen=True)
class Guarded:
    """A figure: its key, what it is, its unit, and whether more or less is better."""

    key: str
    what: str
    unit: str
    better: str


def higher(key: str, what: str, unit: str = "MiB/s") -> Guarded:
    """A figure of which more is better."""
    return Guarded(key, what, unit, "higher")


def lower(key: str, what: str, unit: str = "s") -> Guarded:
    """A figure of which less is better."""
    return Guarded(key, what, unit, "lower")


@dataclasses.dataclass(frozen=True)
class Bench:
    """What the figures of one run share."""

    scratch: Scratch
    settings: Settings
    pattern: str

    @property
    def size_bytes(self) -> int:
        """Returns the size of the random content."""
        return os.path.getsize(self.pattern)

    def job(self, rw: str, block_bytes: int, depth: int) -> Job:
        """Returns a job on all of the content."""
        return Job(rw, block_bytes, self.size_bytes, depth, runtime_s=self.settings.runtime_s)


def rate(endpoint: Endpoint, job: Job) -> float:
    """Measures a job over NBD: MiB/s, or requests a second if they are small."""
    measured = endpoint.measure(job)
    return measured["iops" if job.block_bytes < MIB else "rate"]


def of_node(bench: Bench) -> Iterator[tuple[Guarded, Turn]]:
    """One node, over loopback."""
    node = cheetah.node(bench.scratch, bench.size_bytes).export("guard", bench.size_bytes)
    node.fill(bench.pattern)
    jobs = (
        (higher("node-read", "node: 1 MiB reads, depth 16"), bench.job("read", MIB, 16)),
        (higher("node-write", "node: 1 MiB writes, depth 16"), bench.job("write", MIB, 16)),
        (higher("node-read-4k-1", "node: 4 KiB reads, depth 1", "requests/s"), bench.job("randread", 4 * KIB, 1)),
        (higher("node-read-4k-32", "node: 4 KiB reads, depth 32", "requests/s"), bench.job("randread", 4 * KIB, 32)),
        (higher("node-write-4k-32", "node: 4 KiB writes, depth 32", "requests/s"), bench.job("randwrite", 4 * KIB, 32)),
    )
    for guarded, job in jobs:
        yield guarded, functools.partial(rate, node, job)


def over_nodes(bench: Bench, options: Sequence[str], image: str) -> str:
    """Creates a drive from an image over three nodes of its own; returns its file's path."""
    nodes = [cheetah.node(bench.scratch, bench.size_bytes).nbd for _ in range(3)]
    path = bench.scratch.path("drive") + ".drive"
    cheetah.call(["create", path, "--nodes", ",".join(nodes), "--from", image, *options])
    return path


def of_drives(bench: Bench) -> Iterator[tuple[Guarded, Turn]]:
    """Drives over three nodes: striped by NBD and FUSE, parity, sealed."""
    striped = over_nodes(bench, ["--layout", "stripe", "--no-seal"], bench.pattern)
    exported = cheetah.export(bench.scratch, striped)
    yield (
        higher("drive-read", "drive: 1 MiB reads by NBD"),
        functools.partial(rate, exported, bench.job("read", MIB, 16)),
    )
    yield higher("drive-fuse", "drive: 1 MiB reads by FUSE"), functools.partial(through_mount, bench, striped)
    yield lower("first-byte", "from mount to the first byte"), functools.partial(first_byte, bench, striped)
    yield lower("memory", "peak memory of a mount", "MiB"), functools.partial(memory, bench, striped)
    parity = cheetah.export(bench.scratch, over_nodes(bench, ["--layout", "parity", "--no-seal"], bench.pattern))
    small = bench.job("randread", 4 * KIB, 32)
    yield higher("parity-4k", "parity: 4 KiB reads, depth 32", "requests/s"), functools.partial(rate, parity, small)
    enter = seal.with_identity(bench.scratch)
    nodes = [cheetah.node(bench.scratch, bench.size_bytes).nbd for _ in range(3)]
    path, _ = seal.drive(bench.scratch, nodes, [*seal.of_unit(64 * KIB), "--from", bench.pattern], enter)
    sealed = cheetah.export(bench.scratch, path, enter=enter)
    yield (
        higher("sealed-read", "sealed drive: 1 MiB reads"),
        functools.partial(rate, sealed, bench.job("read", MIB, 16)),
    )


def through_mount(bench: Bench, drive: str) -> float:
    """Reads all of a fresh mount; MiB/s."""
    with bench.scratch.child() as turn:
        _, path = cheetah.mount(turn, drive)
        drop_caches()
        job = Job("read", MIB, bench.size_bytes, 1, loops=False)
        return fio.on_file(job, path).bytes_per_s / MIB


def first_byte(bench: Bench, drive: str) -> float:
    """Seconds from the start of `cheetah mount` until a byte of its file has been read."""
    with bench.scratch.child() as turn:
        start = time.monotonic()
        _, path = cheetah.mount(turn, drive)
        with open(path, "rb") as file:
            file.read(1)
        return time.monotonic() - start


def memory(bench: Bench, drive: str) -> float:
    """The peak memory of a mount that was read once."""
    with bench.scratch.child() as turn:
        process, path = cheetah.mount(turn, drive)
        fio.on_file(Job("read", MIB, bench.size_bytes, 1, loops=False), path)
        return memory_peak_bytes(process) / MIB


def of_rooms(bench: Bench) -> Iterator[tuple[Guarded, Turn]]:
    """A drive over nodes of a room: TLS."""
    members = room.Room.new(bench.scratch)
    desk = members.credential("examiner", "desk")
    nodes = [room.node(bench.scratch, bench.size_bytes, members.credential("node", f"pc{n}"))["nbd"] for n in range(2)]
    enter = room.acting(desk)
    path, _ = seal.drive(bench.scratch, nodes, ["--no-seal", "--from", bench.pattern], enter)
    exported = cheetah.export(bench.scratch, path, tcp=False, enter=enter)
    yield (
        higher("tls-read", "drive in a room: 1 MiB reads"),
        functools.partial(rate, exported, bench.job("read", MIB, 16)),
    )


def of_images(bench: Bench) -> Iterator[tuple[Guarded, Turn]]:
    """Acquisition from an agent, and E01 in and out."""
    image = Images(bench.scratch).get("mixed", bench.size_bytes)
    address = f"127.0.0.1:{free_port()}"
    cheetah.agent(bench.scratch, image.path, address)
    made = os.path.join(bench.scratch.disk_dir, "read.E01")
    cheetah.acquire(image.path, made, "md5")
    yield (
        higher("acquire", "acquire from an agent"),
        functools.partial(acquired, bench, image, f"nbd://{address}/", "raw"),
    )
    yield higher("e01-write", "E01 writing, MD5"), functools.partial(acquired, bench, image, image.path, "E01")
    yield higher("e01-read", "E01 through a mount"), functools.partial(through_mount, bench, made)


def acquired(bench: Bench, image: AcquiredImage, source: str, form: str) -> float:
    """Acquires an image that is in memory; MiB/s of the whole command."""
    image.cache(warm=True)
    with bench.scratch.child() as turn:
        target = os.path.join(turn.disk_dir, f"image.{form}")
        start = time.monotonic()
        report = cheetah.acquire(source, target, "md5")
        seconds = time.monotonic() - start
    if report["hashes"]["md5"] != image.md5:
        raise BenchError(f"{source}: the MD5 of the copy differs")
    return bench.size_bytes / MIB / seconds


def of_sites(bench: Bench) -> Iterator[tuple[Guarded, Turn]]:
    """A listing, and files, over a delay."""
    image = examined.get(examined.kinds("ntfs", quick=True)[0])
    line = Line("1gbit", DELAY_MS)
    site = Site(bench.scratch, bench.scratch.enter(line.lab()), image)
    yield lower("listing", f"fls -r, {DELAY_MS} ms one way"), functools.partial(listed, bench, site, files=False)
    yield (
        lower("icat", f"{EXTRACTED_FILES} × icat there, after the listing"),
        functools.partial(listed, bench, site, files=True),
    )


def listed(bench: Bench, site: Site, files: bool) -> float:
    """Lists a remote image through a fresh mount, or extracts files right after that; seconds."""
    with bench.scratch.child() as turn:
        start = time.monotonic()
        _, path = cheetah.mount(turn, site.uri, enter=site.enter)
        out = turn.path("listing")
        examiner.listing(path, 120, out)
        examiner.check_listing("guard", out, site.image.listing_sha256)
        if not files:
            return time.monotonic() - start
        start = time.monotonic()
        outcome = examiner.extraction(path, site.image.consecutive.addresses[:EXTRACTED_FILES], 120)
        seconds = time.monotonic() - start
        examiner.check_hashes("guard", examiner.hashes_of(outcome), site.image.consecutive.sha256[:EXTRACTED_FILES])
        return seconds


def of_triage(bench: Bench) -> Iterator[tuple[Guarded, Turn]]:
    """A triage of a small image, with the package of this Python for both builds."""
    image = examined.get(examined.kinds("ntfs", quick=True)[0])
    yield lower("triage", f"triage of {image.files} files"), functools.partial(triaged, bench, image.path)


def triaged(bench: Bench, path: str) -> float:
    """Seconds of a triage, its report included."""
    with bench.scratch.child() as turn:
        argv = ["env", f"CHEETAH_PYTHON={sys.executable}", cheetah.binary(), "triage", path]
        return timed([*argv, "--out", turn.path("triage"), "--workers", "2"])


def of_starts(bench: Bench) -> Iterator[tuple[Guarded, Turn]]:
    """The start of the program."""
    yield lower("start", "start of the program", "ms"), started


def started() -> float:
    """Milliseconds from the start to the end of a command that does nothing."""
    line = f'for _ in $(seq {STARTS}); do "$0" --version >/dev/null; done'
    return timed(["bash", "-c", line, cheetah.binary()]) / STARTS * 1000


Group = Callable[[Bench], Iterator[tuple[Guarded, Turn]]]

GROUPS: tuple[Group, ...] = (of_node, of_drives, of_rooms, of_images, of_sites, of_triage, of_starts)


def prepare(scratch: Scratch, settings: Settings, build: Build, group: Group) -> dict[Guarded, Turn]:
    """Prepares the figures of a group with a build; returns their measurements."""
    pattern = write_random(os.path.join(scratch.ram_dir, "pattern"), settings.size_bytes)
    with build.in_use():
        return dict(group(Bench(scratch, settings, pattern)))
