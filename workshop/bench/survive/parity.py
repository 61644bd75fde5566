"""Parity over three nodes, beside a stripe and a dispersed GlusterFS volume, 2 + 1."""

from bench.settings import Settings
from bench.survive.drives import PARITY
from bench.survive.loopback import Bars, measure_layout
from bench.tools.redundant import gluster
from cheetah.bench.figure import Figure


def measure(settings: Settings) -> list[Figure]:
    """Measures the part."""
    return measure_layout(settings, PARITY, Bars(write=0.6, overwrite=0.35, peer=5.0), gluster)
