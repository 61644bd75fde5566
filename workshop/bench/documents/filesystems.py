"""File systems on the same disk: seven steps of an examination on ext2, ext3, ext4, xfs, btrfs, vfat and ntfs."""

from bench.documents import harnessed
from bench.harness.cases import chosen
from bench.scratch import Scratch
from bench.settings import Settings
from cheetah.bench.figure import Figure

KEY = "filesystems"
KINDS = ("ext4", "ext2", "ext3", "xfs", "btrfs", "vfat", "ntfs")
TARGETS = {"disk": "disk:desktop", "drive": "ram:stripe@local:3"}
STEPS = ("copy", "md5sum", "strings", "unallocated", "foremost", "tsk_recover", "tar")


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures. The 7,200 rpm disk is a model; a drive over three nodes stands beside it."""
    kinds = ",".join(KINDS[:2] if settings.quick else KINDS)
    wanted = chosen(TARGETS, settings)
    figures = []
    with Scratch() as scratch:
        image = harnessed.image_of(scratch, settings)
        for run, target in ((run, TARGETS[run]) for run in wanted):
            with scratch.child() as turn:
                more = ("--sweep", f"fs={kinds}", "--image", str(image))
                found = harnessed.measured(turn, settings, KEY, run, ((run, target),), STEPS, more)
            figures += list(harnessed.figures_of(found, KEY, run, run))
    return figures
