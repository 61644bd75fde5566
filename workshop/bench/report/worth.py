"""When a drive is worth it: rates, times and costs by the speed of links, calculated from published figures.

Measured are one link of 1 Gbit/s, the processor time of a MiB, and the memory of nodes; the rate of a link grows with its speed as
long as processors keep up. Rates of disks are those of their interfaces and data sheets, and no measurements.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Iterator, Sequence

from bench.report import marked, published
from cheetah.bench.units import MIB

GBIT_BYTES_PER_S = 1e9 / 8
MEASURED_GBIT = 1.0
LINKS_GBIT = (1.0, 2.5, 10.0, 25.0)
READERS = (1, 2, 4, 8)
ROUND_TRIPS_US = (200, 100, 50)
IMAGES_GIB = (100, 500, 2000)
IMAGE_GIB = 500
LENT_GIB = 16
# A hard disk of today, SATA, PCIe 3.0 and 4.0 with four lanes: MB/s, as makers state them.
DISKS_MB_PER_S = {"hard disk": 250, "SATA SSD": 550, "NVMe, PCIe 3": 3500, "NVMe, PCIe 4": 7000}
# A read of 4 KiB alone, as makers state it; the hard disk is the model of 2008: command, average seek, half a turn.
DISKS_READ_US = {"hard disk": 12_870, "NVMe": 80}
# Content that a member holds, by layout, for the drive's: over n nodes.
LAYOUTS: dict[str, Callable[[int], float]] = {
    "stripe": lambda nodes: 1.0,
    "parity": lambda nodes: nodes / (nodes - 1),
    "mirror": lambda nodes: 2.0,
}
NODES_MIN = {"stripe": 1, "parity": 3, "mirror": 2}
NODES_MAX = 1000

LINK_ROW = ("links", "1 node: sequential read through the mount")
LINKS_ROW = ("links", "4 nodes: sequential read through the mount")
MOUNT_ROW = ("fuse", "sequential read in 1 MiB records")
MOUNT_CPU_ROW = ("fuse", "sequential read in 1 MiB records: CPU a request of the mounting process")
NODE_CPU_ROW = ("node", "1 MiB sequential read, depth 16: server CPU a request")
ALONE_ROW = ("fuse", "4 KiB random read, one thread")
NODE_MEMORY_ROWS = {
    held_mib: ("memory", f"cheetah node, the largest of 3 that hold {held_mib // 1024}GiB: peak resident")
    for held_mib in (1024, 4096)
}
MEMORY_NODES = 3
ANALYSTS = "analysts"


@dataclasses.dataclass(frozen=True)
class Measured:
    """The published figures that everything follows from."""

    link_mib_per_s: float
    """What a mount reads over one link of `MEASURED_GBIT`."""
    mount_cpu_s: float
    """The processor time of the mounting process for a MiB."""
    node_cpu_s: float
    """The processor time of the node for a MiB."""
    alone_s: float
    """The time of a read of 4 KiB through a mount, the nodes on the same machine."""
    node_mib: float
    """The memory of a node without content."""
    node_share: float
    """The memory of a node for each byte of content."""

    def carried(self, gbit: float) -> float:
        """Returns what one link carries, in MiB/s of content."""
        return self.link_mib_per_s * gbit / MEASURED_GBIT

    @property
    def link_share(self) -> float:
        """The share of a link's rate that is content."""
        return self.link_mib_per_s * MIB / (MEASURED_GBIT * GBIT_BYTES_PER_S)

    def each(self, readers: int, nodes: int, gbit: float) -> float:
        """Returns what each of several readers gets from a drive, every machine behind a link of its own, in MiB/s. One
        node is a server of the usual kind."""
        return self.carried(gbit) * min(readers, nodes) / readers

    def hours(self, size_gib: float, gbit: float) -> float:
        """Returns the time in which an image passes a link once."""
        return size_gib * 1024 / self.carried(gbit) / 3600

    def reads_per_s(self, round_trip_us: float) -> float:
        """Returns the reads of 4 KiB, one at a time, over a link with that round trip."""
        return 1 / (self.alone_s + round_trip_us / 1e6)

    def machines(self, size_gib: float, layout: str) -> int:
        """Returns how many machines that lend `LENT_GIB` each hold an image; 0 if more than `NODES_MAX`."""
        held_mib = (LENT_GIB * 1024 - self.node_mib) / self.node_share
        for nodes in range(NODES_MIN[layout], NODES_MAX + 1):
            if size_gib * 1024 * LAYOUTS[layout](nodes) <= nodes * held_mib:
                return nodes
        return 0


def measured() -> Measured:
    """Returns the published figures. Raises BenchError if a row is missing."""
    held = {mib / MEMORY_NODES: published.ours(*row) for mib, row in NODE_MEMORY_ROWS.items()}
    (few, few_mib), (many, many_mib) = sorted(held.items())
    share = (many_mib - few_mib) / (many - few)
    return Measured(
        link_mib_per_s=published.ours(*LINK_ROW),
        mount_cpu_s=published.ours(*MOUNT_CPU_ROW) / 1e6,
        node_cpu_s=published.ours(*NODE_CPU_ROW) / 1e6,
        alone_s=1 / published.ours(*ALONE_ROW),
        node_mib=few_mib - few * share,
        node_share=share,
    )


def number(value: float) -> str:
    """Returns a figure with two or three digits, and commas."""
    if value >= 100:
        digits = 10 ** (math.floor(math.log10(value)) - 2)
        return f"{round(value / digits) * digits:,.0f}"
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def time(hours: float) -> str:
    """Returns a time in minutes or hours."""
    return f"{number(hours * 60)} min" if hours < 1 else f"{number(hours)} h"


def _table(heads: Sequence[str], rows: Iterator[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(heads)} |", "|---" + "|---:" * (len(heads) - 1) + "|"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows)]


def _disk_mib(name: str) -> float:
    return DISKS_MB_PER_S[name] * 1e6 / MIB


def one_reader(figures: Measured, to_results: str) -> list[str]:
    """Returns what one reader gets, by the link of its machine, beside disks in it."""
    heads = ["link", "a drive, MiB/s", "processors of the mount", "of all nodes together"]
    heads += [f"÷ {name}, {rate:,} MB/s" for name, rate in DISKS_MB_PER_S.items()]

    def rows() -> Iterator[Sequence[str]]:
        for gbit in LINKS_GBIT:
            rate = figures.carried(gbit)
            cells = [
                f"{gbit:g} Gbit/s",
                number(rate),
                number(rate * figures.mount_cpu_s),
                number(rate * figures.node_cpu_s),
            ]
            ratios = (rate / _disk_mib(name) for name in DISKS_MB_PER_S)
            yield [*cells, *(f"**{number(ratio)}**" if ratio >= 1 else number(ratio) for ratio in ratios)]

    reads = ", ".join(f"{number(figures.reads_per_s(us))} at {us / 1000:g} ms" for us in ROUND_TRIPS_US)
    disks = ", ".join(f"{name} {number(1e6 / us)}" for name, us in DISKS_READ_US.items())
    return [
        *_table(heads, rows()),
        "",
        f"Calculated from {published.link(*LINK_ROW, 'one link of 1 Gbit/s', to_results)} (content is {100 * figures.link_share:.0f} % of",
        f"its rate) and the processor time that {published.link(*MOUNT_CPU_ROW, 'the mount', to_results)} and",
        f"{published.link(*NODE_CPU_ROW, 'the node', to_results)} take for a MiB. The most that one reader was seen to get is",
        f"{published.link(*MOUNT_ROW, number(published.ours(*MOUNT_ROW)) + ' MiB/s', to_results)}, with nodes, mount and reader on two processors.",
        "",
        f"Reads of 4 KiB, one at a time, wait for the round trip: {reads} of round trip in a second (calculated from",
        f"{published.link(*ALONE_ROW, 'such reads without a link', to_results)}); by data sheets: {disks}.",
    ]


def several_readers(figures: Measured, to_results: str) -> list[str]:
    """Returns what each of several readers gets, and when all can begin."""
    nodes = max(READERS)
    heads = ["readers at once"]
    for gbit in LINKS_GBIT:
        heads += [f"{gbit:g} Gbit/s: drive", "one server"]

    def rows() -> Iterator[Sequence[str]]:
        for readers in READERS:
            pairs = ((figures.each(readers, nodes, gbit), figures.each(readers, 1, gbit)) for gbit in LINKS_GBIT)
            yield [str(readers), *(number(rate) for pair in pairs for rate in pair)]

    lines = [
        f"MiB/s for each reader, of a drive over {nodes} nodes and of one server whose disk is faster than its link:",
        "",
        *_table(heads, rows()),
        "",
        f"Calculated: links add up, as {published.link(*LINKS_ROW, 'four of them', to_results)} do beside",
        f"{published.link(*LINK_ROW, 'one', to_results)}.",
    ]
    return lines + (_analysts(to_results) if published.exists(ANALYSTS) else [])


def _analysts(to_results: str) -> list[str]:
    """Returns what was measured of several readers: of all together."""
    rows = {count: f"{count} {'analyst' if count == 1 else 'analysts'} at once" for count in READERS}
    links = [
        published.link(ANALYSTS, what, f"{count}: {number(published.ours(ANALYSTS, what))}", to_results)
        for count, what in rows.items()
    ]
    return [
        "",
        f"Measured, all readers of a drive over four nodes together, MiB/s by their number: {', '.join(links)}.",
    ]


def times(figures: Measured, to_results: str) -> list[str]:
    """Returns when an image is where it is needed."""
    copies = max(READERS)
    heads = [f"an image of {IMAGE_GIB} GiB", *(f"{gbit:g} Gbit/s" for gbit in LINKS_GBIT)]

    def rows() -> Iterator[Sequence[str]]:
        once = [figures.hours(IMAGE_GIB, gbit) for gbit in LINKS_GBIT]
        yield ["loaded onto a drive, or copied to one disk", *map(time, once)]
        yield [f"copied to {copies} disks from one server", *(time(copies * hours) for hours in once)]

    return [
        *_table(heads, rows()),
        "",
        f"Calculated from {published.link(*LINK_ROW, 'one link of 1 Gbit/s', to_results)}.",
    ]


def machines(figures: Measured, to_results: str) -> list[str]:
    """Returns how many machines an image takes, by layout."""
    heads = ["image", *(f"`{layout}`" for layout in LAYOUTS)]

    def rows() -> Iterator[Sequence[str]]:
        for size in IMAGES_GIB:
            yield [f"{size:,} GiB", *(f"{figures.machines(size, layout):,}" for layout in LAYOUTS)]

    memory = published.link(*NODE_MEMORY_ROWS[4096], "measured", to_results)
    return [
        f"Machines that lend {LENT_GIB} GiB each:",
        "",
        *_table(heads, rows()),
        "",
        f"A node takes {number(figures.node_mib)} MiB, and {figures.node_share:.2f} bytes for each byte that it holds ({memory}).",
    ]


def summary(figures: Measured, to_results: str) -> list[str]:
    """Returns the few lines for the project's first page."""
    nvme = "NVMe, PCIe 3"
    few = READERS[2]

    def rows() -> Iterator[Sequence[str]]:
        yield [
            f"a local NVMe disk, {DISKS_MB_PER_S[nvme]:,} MB/s by its data sheet",
            number(_disk_mib(nvme)),
            "one machine only",
        ]
        alone, each = figures.each(1, 1, 1), figures.each(few, 1, 1)
        yield ["any disk of a server with 1 Gbit/s", number(alone), number(each)]
        for gbit in (1.0, 10.0):
            rates = (figures.each(readers, few, gbit) for readers in (1, few))
            yield [f"a drive over {few} nodes with {gbit:g} Gbit/s each", *map(number, rates)]

    return [
        *_table(["storage", "one reader, MiB/s", f"each of {few} readers"], rows()),
        "",
        f"Calculated from {published.link(*LINK_ROW, 'one link of 1 Gbit/s', to_results)} and"
        f" {published.link(*LINKS_ROW, 'four', to_results)}.",
    ]


# The parts of each document that are written here.
PARTS: dict[str, dict[str, Callable[[Measured, str], list[str]]]] = {
    "docs/guide/worth-it.md": {
        "one reader": one_reader,
        "several readers": several_readers,
        "times": times,
        "machines": machines,
    },
    "README.md": {"when a drive is worth it": summary},
}


def calculated(document: str, text: str) -> str:
    """Returns the text of a document, which is named by its path in the project, with all that is calculated for it."""
    figures = measured()
    to_results = os.path.relpath(published.PAGES_DIR, os.path.join(published.ROOT, os.path.dirname(document)))
    for name, lines_of in PARTS[document].items():
        text = marked.replaced(text, name, ["", *lines_of(figures, to_results), ""])
    return text


def write() -> None:
    """Writes what is calculated into the documents. Raises BenchError if a row is missing that it follows from."""
    for document in PARTS:
        path = os.path.join(published.ROOT, document)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write(calculated(document, text))
