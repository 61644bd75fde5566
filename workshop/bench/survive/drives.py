"""The redundant drives under measurement."""

import dataclasses
import os
import signal
from typing import Any

from bench.scratch import Scratch
from bench.tools import cheetah
from cheetah.bench.units import MIB


@dataclasses.dataclass(frozen=True)
class Layout:
    """A layout: the options of `cheetah create`, its nodes, and how many of them hold the content once."""

    name: str
    options: tuple[str, ...]
    nodes: int
    data_nodes: int

    def share_bytes(self, size_bytes: int) -> int:
        """Returns what one node lends to a drive, with some room for maps and rounding."""
        return size_bytes // self.data_nodes + 32 * MIB


MIRROR = Layout("mirror", ("--layout", "mirror", "--copies", "2"), 2, 1)
PARITY = Layout("parity", ("--layout", "parity", "--parity", "1"), 3, 2)


def stripe(nodes: int) -> Layout:
    """Returns the layout without redundancy."""
    return Layout("stripe", ("--layout", "stripe"), nodes, nodes)


def create(scratch: Scratch, layout: Layout, nodes: Any, image: str, enter: Any = list) -> str:
    """Creates a drive from an image over running nodes; returns the path of its file."""
    path = scratch.path("drive") + ".drive"
    names = ",".join(node.nbd for node in nodes)
    cheetah.call(["create", path, "--nodes", names, *layout.options, "--no-seal", "--from", image], enter)
    return path


def create_here(scratch: Scratch, layout: Layout, size_bytes: int, image: str) -> tuple[str, Any]:
    """Creates a drive over new nodes of this machine; returns the path of its file, and the nodes."""
    nodes = [cheetah.node(scratch, layout.share_bytes(size_bytes)) for _ in range(layout.nodes)]
    drive = create(scratch, layout, nodes, image)
    for node in nodes:
        node.wait_for_memory()
    return drive, nodes


def kill(node: Any) -> None:
    """Kills a node as a power cut does."""
    os.kill(node.process.pid, signal.SIGKILL)
