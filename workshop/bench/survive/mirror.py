"""A mirror over two nodes, beside a stripe and QEMU's quorum driver over two NBD servers."""

from bench.settings import Settings
from bench.survive.drives import MIRROR
from bench.survive.loopback import Bars, measure_layout
from bench.tools.redundant import quorum
from cheetah.bench.figure import Figure


def measure(settings: Settings) -> list[Figure]:
    """Measures the part."""
    return measure_layout(settings, MIRROR, Bars(write=0.5, overwrite=0.5, peer=2.0), quorum)
