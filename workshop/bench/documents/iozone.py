"""The matrix of iozone (2009): 63 sizes of file and record, read and written in eight orders, and from the cache, on this
machine and over links; and the thesis's further tests of iozone, by other engines of fio."""

import functools
import os
from collections.abc import Iterator

from bench.documents import harnessed, places
from bench.documents.places import DESKTOP, LOCAL
from bench.harness import fio
from bench.harness.cases import chosen
from bench.harness.figures import Metric, from_rounds
from bench.harness.fio import Job
from bench.harness.rounds import interleave
from bench.images.filesystem import ext4_on
from bench.parts.drive import NODES
from bench.parts.storage import wait_for_memory
from bench.scratch import Scratch, drop_caches
from bench.settings import Settings
from bench.tools import cheetah
from cheetah.bench.figure import Figure
from cheetah.bench.storage.settings import Scope
from cheetah.bench.storage.steps.matrix import files_bytes
from cheetah.bench.units import KIB, MIB
from lab.network import Lab

KEY = "iozone"
DRIVE = "drive"
ENGINES = ("psync", "libaio", "io_uring", "mmap")
ORDERS = ("read", "write", "randread", "randwrite")
LAB_RATE, LAB_RTT = "1gbit", "0.2ms"
# The parts of this part.
MATRIX, OVER_LINKS, BY_ENGINE = "matrix on this machine", "matrix over links", "engines"
DEPTH = 16
ROUNDS_MAX = 3


def matrix(scratch: Scratch, settings: Settings) -> Iterator[Figure]:
    """Yields the matrix: all 63 sizes in a full run, which takes hours, otherwise six."""
    targets = (
        ("disk", str(scratch.disk_dir)),
        ("7,200 rpm", "disk:desktop"),
        (DRIVE, "ram:stripe@local:3"),
    )
    found = harnessed.measured(scratch, settings, KEY, "matrix", targets, ("fio",), _extent(settings))
    yield from harnessed.figures_of(found, KEY, "matrix")


def _extent(settings: Settings) -> tuple[str, ...]:
    return ("--full",) if settings.full and not settings.quick else ()


def over_links(scratch: Scratch, settings: Settings) -> Iterator[Figure]:
    """Yields the matrix of a drive over nodes with a link each. It has a run of its own, as all drives and models
    together would not fit into memory."""
    extent = Scope.QUICK if settings.quick else Scope.FULL if settings.full else Scope.NORMAL
    share_bytes = places.room_for(files_bytes(extent)) // NODES + 16 * MIB
    with Lab(NODES, LAB_RATE, LAB_RTT) as lab:
        nodes = [cheetah.node(scratch, share_bytes, node.address, node.command) for node in lab.nodes]
        for node in nodes:
            wait_for_memory(lab, node)
        target = f"ram:stripe@{','.join(node.nbd for node in nodes)}"
        targets = ((f"{DRIVE}, links of {LAB_RATE}", target),)
        more = _extent(settings)
        found = harnessed.measured(scratch, settings, KEY, "lab", targets, ("fio",), more, lab.examiner.command)
    yield from harnessed.figures_of(found, KEY, "lab")


def engines(scratch: Scratch, settings: Settings) -> Iterator[Figure]:
    """Yields the engines of fio, each in a file of its own place."""
    size_bytes = 16 * MIB if settings.quick else 512 * MIB
    nodes = [cheetah.node(scratch, places.room_for(size_bytes) // NODES + 4 * MIB) for _ in range(NODES)]
    _, raw = cheetah.mount(scratch, cheetah.create(scratch, nodes, places.room_for(size_bytes)), writable=True)
    directories = {
        DRIVE: ext4_on(scratch, raw),
        DESKTOP: places.on_model(scratch, DESKTOP, size_bytes),
        LOCAL: scratch.disk_dir,
    }
    for directory in directories.values():
        with open(os.path.join(directory, "engines.dat"), "wb") as file:
            file.write(os.urandom(MIB) * (size_bytes // MIB))
            os.fsync(file.fileno())
    for engine in ENGINES:
        for order in ORDERS:
            turns = {
                name: functools.partial(_by_engine, engine, order, os.path.join(directory, "engines.dat"), settings)
                for name, directory in directories.items()
            }
            what = f"{engine}, {order} in 4 KiB"
            results = interleave(what, min(settings.rounds, ROUNDS_MAX), turns)
            yield from from_rounds(
                f"{KEY}/engine/{engine}/{order}", what, DRIVE, (Metric("rate", "", "MiB/s"),), results
            )


def _by_engine(engine: str, order: str, path: str, settings: Settings) -> dict[str, float]:
    """Runs one job; asynchronous engines are direct and have a queue."""
    size_bytes = os.path.getsize(path)
    is_async = engine in ("libaio", "io_uring")
    extra = (f"--ioengine={engine}", f"--direct={int(is_async)}", f"--filename={path}", "--allow_file_create=0")
    job = Job(
        order, 4 * KIB, size_bytes, DEPTH if is_async else 1, runtime_s=settings.runtime_s, loops=False,
        fsync_at_end="write" in order, extra=extra,
    )  # fmt: skip
    drop_caches()
    return {"rate": fio.run_job(job).bytes_per_s / MIB}


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures."""
    figures: list[Figure] = []
    measured = {MATRIX: matrix, OVER_LINKS: over_links, BY_ENGINE: engines}
    for name in chosen(measured, settings):
        with Scratch() as scratch:
            figures += measured[name](scratch, settings)
    return figures
