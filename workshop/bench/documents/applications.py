"""The thesis's applications (figures 5.5 to 5.8) on two NTFS images: tar, sorter, Scalpel and md5sum."""

import functools
import os
import shutil
from collections.abc import Callable, Iterator, Sequence

from bench.documents import places
from bench.documents.places import DESKTOP, DRIVE, IDE, LOCAL
from bench.harness.cases import chosen
from bench.harness.process import timed
from bench.harness.rounds import interleave
from bench.images import examined
from bench.images.examined import ImageKind
from bench.scratch import Scratch, drop_caches
from bench.settings import Settings
from cheetah.bench import tree
from cheetah.bench.figure import Figure
from cheetah.bench.process import run
from cheetah.bench.storage.steps.carving import SCALPEL_CONFIG
from cheetah.bench.units import GIB, MIB
from lab.network import Lab

KEY = "thesis-tools"
RATE, RTT, NODES = "1gbit", "0.2ms", 6
# The thesis's two disks had 4.3 and 6.4 GB; tar had no room for the larger.
IMAGES = (ImageKind("ntfs", 4 * GIB, 24_000, 3 * GIB), ImageKind("ntfs", 6 * GIB, 30_000, 5 * GIB))
QUICK_IMAGES = (ImageKind("ntfs", 64 * MIB, 800, 40 * MIB),)
TREE_BYTES, TREE_FILES = GIB, 8_000
# Of the thesis, per image: 156 % and 80 % faster.
SCALPEL_BARS = (2.56, 1.8)
TOOLS = ("tar-create", "tar-extract", "sorter", "scalpel", "md5sum")
TAR_TOOLS = 2

Work = Callable[[], dict[str, float]]


def _seconds(*commands: list[str]) -> dict[str, float]:
    """Returns the seconds of commands, from cold caches."""
    drop_caches()
    return {"seconds": sum(timed(argv) for argv in commands)}


def _archive(directory: str) -> list[list[str]]:
    archive = os.path.join(directory, "archive.tar")
    return [["tar", "-C", os.path.join(directory, "tree"), "-cf", archive, "."], ["sync", archive]]


def tar_create(directory: str) -> dict[str, float]:
    """Archives the tree into a file beside it, until it is written."""
    result = _seconds(*_archive(directory))
    os.remove(os.path.join(directory, "archive.tar"))
    return result


def tar_extract(directory: str) -> dict[str, float]:
    """Extracts an archive of the tree, until it is written."""
    out, archive = os.path.join(directory, "extracted"), os.path.join(directory, "archive.tar")
    os.mkdir(out)
    for argv in _archive(directory):
        run(argv)
    result = _seconds(["tar", "-C", out, "-xf", archive], ["sync", "--file-system", out])
    shutil.rmtree(out)
    os.remove(archive)
    return result


def _on_image(directory: str, argv_of: Callable[[str, str], list[str]]) -> dict[str, float]:
    """Runs a tool on the image in a directory, with its results beside it."""
    out = os.path.join(directory, "out")
    os.mkdir(out)
    result = _seconds(argv_of(os.path.join(directory, "image.raw"), out))
    shutil.rmtree(out)
    return result


def works(directory: str) -> dict[str, Work]:
    """Returns the work of each tool in a directory with `image.raw` and `tree`."""
    carve = ["scalpel", "-c", str(SCALPEL_CONFIG), "-o"]
    return {
        "tar-create": functools.partial(tar_create, directory),
        "tar-extract": functools.partial(tar_extract, directory),
        "sorter": functools.partial(
            _on_image, directory, lambda image, out: ["sorter", "-m", "/", "-d", out, "-f", "ntfs", image]
        ),
        "scalpel": functools.partial(
            _on_image, directory, lambda image, out: [*carve, os.path.join(out, "carved"), image]
        ),
        "md5sum": functools.partial(_on_image, directory, lambda image, _: ["md5sum", image]),
    }


def figures_of(kind: str, number: int, tool: str, seconds: dict[str, list[float]]) -> Iterator[Figure]:
    """Yields a figure beside each disk."""
    for disk in (name for name in seconds if name != DRIVE):
        samples = {DRIVE: seconds[DRIVE], disk: seconds[disk]}
        bar = None
        # This machine's disk is faster than the link that most nodes are behind: no bar can be met beside it.
        if tool.startswith("tar") and disk != LOCAL:
            bar = 1.0
        elif tool == "scalpel" and disk == IDE and number < len(SCALPEL_BARS):
            # The bar of a time is the inverse of a speed-up.
            bar = round(1 / SCALPEL_BARS[number], 3)
        what = f"{tool}, {kind}, beside {disk}"
        yield Figure(f"{KEY}/{kind}/{tool}/{disk}", what, "s", DRIVE, samples, "lower", bar)


def tools(number: int) -> tuple[str, ...]:
    """Returns the tools of an image. Only the smaller one has a tree beside it, for tar."""
    return TOOLS if number == 0 else TOOLS[TAR_TOOLS:]


def measure_image(number: int, kind: ImageKind, wanted: Sequence[str], settings: Settings) -> Iterator[Figure]:
    """Measures the wanted tools on one image."""
    if not any(f"{tool}, {kind.name}" in wanted for tool in tools(number)):
        return
    image = examined.get(kind).path
    tree_bytes = min(TREE_BYTES, kind.size_bytes // 2) if number == 0 else 0
    content_bytes = kind.size_bytes + 3 * tree_bytes + kind.size_bytes // 2
    with Scratch() as scratch, Lab(1, RATE, RTT) as lab:
        directories = {
            DRIVE: places.on_drive(scratch, lab, NODES, content_bytes),
            IDE: places.on_model(scratch, IDE, content_bytes),
            DESKTOP: places.on_model(scratch, DESKTOP, content_bytes),
            LOCAL: scratch.disk_dir,
        }
        for directory in directories.values():
            run(["cp", "--sparse=never", image, os.path.join(directory, "image.raw")])
            if tree_bytes:
                tree.make(os.path.join(directory, "tree"), TREE_FILES, tree_bytes)
        run(["sync"])
        by_place = {name: works(directory) for name, directory in directories.items()}
        for tool in (tool for tool in tools(number) if f"{tool}, {kind.name}" in wanted):
            turns = {name: by_place[name][tool] for name in directories}
            results = interleave(f"{tool}, {kind.name}", settings.rounds, turns, "seconds")
            seconds = {name: [sample["seconds"] for sample in samples] for name, samples in results.items()}
            yield from figures_of(kind.name, number, tool, seconds)


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures."""
    kinds = QUICK_IMAGES if settings.quick else IMAGES
    wanted = chosen([f"{tool}, {kind.name}" for number, kind in enumerate(kinds) for tool in tools(number)], settings)
    return [figure for number, kind in enumerate(kinds) for figure in measure_image(number, kind, wanted, settings)]
