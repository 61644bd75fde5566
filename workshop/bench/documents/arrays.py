"""Arrays of disks (2009): one disk, RAID 0 with three stripe units and RAID 5 over four, by our own stripe and parity."""

from collections.abc import Iterator

from bench.documents import harnessed
from bench.harness.cases import chosen
from bench.scratch import Scratch
from bench.settings import Settings
from cheetah.bench.figure import Figure
from cheetah.bench.units import GIB

KEY = "arrays"
STOCK = ("one disk", "disk:desktop")
# As in the document's table, from top to bottom.
CANDIDATES = (
    ("VelociRaptor", "disk:velociraptor"),
    ("RAID 5, 64 KiB", "array:parity:64KiB@desktop:4"),
    ("RAID 0, 16 KiB", "array:stripe:16KiB@desktop:4"),
    ("RAID 0, 64 KiB", "array:stripe:64KiB@desktop:4"),
    ("RAID 0, 256 KiB", "array:stripe:256KiB@desktop:4"),
)
STEPS = ("copy", "md5sum", "strings", "unallocated", "foremost")
IMAGE_BYTES = 4 * GIB


def runs(settings: Settings) -> Iterator[Figure]:
    """Yields the figures of all runs. Each candidate has a run beside the one disk: all together would not fit into
    memory."""
    candidates = CANDIDATES[:: 2 if settings.quick else 1]
    wanted = chosen([name for name, _ in candidates], settings)
    with Scratch() as scratch:
        image = harnessed.image_of(scratch, settings, 0 if settings.quick else IMAGE_BYTES)
        for candidate in (one for one in candidates if one[0] in wanted):
            run = str(CANDIDATES.index(candidate))
            with scratch.child() as turn:
                targets = (STOCK, candidate)
                found = harnessed.measured(turn, settings, KEY, run, targets, STEPS, ("--image", str(image)))
            yield from harnessed.figures_of(found, KEY, run, candidate[0])


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures."""
    return list(runs(settings))
