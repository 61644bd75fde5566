"""Table 5.1 of the thesis over links, beside models of disks: records of 4 KiB, 64 KiB and 1 MiB, files up to 8 GiB."""

import dataclasses
import functools
import itertools
from collections.abc import Iterator
from typing import Any

from bench.documents import places
from bench.documents.places import DESKTOP, DRIVE, IDE, LOCAL
from bench.harness.cases import chosen
from bench.harness.rounds import interleave
from bench.harness.writeback import unwritten_at_most
from bench.parts import thesis
from bench.scratch import Scratch
from bench.settings import Settings
from bench.tools import iperf
from cheetah.bench.figure import Figure
from cheetah.bench.units import GIB, KIB, MIB, iec
from lab.network import Lab

KEY = "thesis-table"
RTT = "0.2ms"
NETWORKS = ("1gbit", "100mbit")
NODES = (6, 4, 2)
SIZES_BYTES = (GIB // 2, 2 * GIB, 8 * GIB)
RECORDS_BYTES = (4 * KIB, 64 * KIB, MIB)
# The thesis's machine had 1 GB beside what it lent, for files of up to 8 GB: most of what is written must be on the disk
# before the program ends.
MEMORY_SHARE = 8
LINK = "the link (iperf3)"
LINK_BAR = 0.96
LINK_SECONDS = 3
# Where the link is the limit of a drive.
BY_THE_LINK = ("write", "rewrite", "read", "reread")
# The network of the thesis; with the slower one no ratio of its table applies.
OF_THE_THESIS = "1gbit"


@dataclasses.dataclass(frozen=True)
class Case:
    """One repetition of the table."""

    network: str = OF_THE_THESIS
    nodes: int = NODES[0]
    size_bytes: int = SIZES_BYTES[0]
    record_bytes: int = RECORDS_BYTES[0]
    direct: bool = False

    @property
    def key(self) -> str:
        """Its part of the figures' ids."""
        how = "direct" if self.direct else "buffered"
        return f"{self.network}/{self.nodes}/{iec(self.size_bytes)}/{iec(self.record_bytes)}/{how}"

    def __str__(self) -> str:
        how = "direct" if self.direct else "buffered"
        return f"{self.network}, {self.nodes} nodes, {iec(self.size_bytes)} in {iec(self.record_bytes)}, {how}"


def cases(settings: Settings) -> Iterator[Case]:
    """Yields the thesis's case, and those that differ from it in one thing; in a full run all combinations."""
    if settings.quick:
        yield Case(nodes=2, size_bytes=32 * MIB)
        return
    if settings.full:
        for network, nodes, size in itertools.product(NETWORKS, NODES, SIZES_BYTES):
            for record, direct in itertools.product(RECORDS_BYTES, (False, True)):
                yield Case(network, nodes, size, record, direct)
        return
    base = Case()
    yield base
    yield from (dataclasses.replace(base, network=network) for network in NETWORKS[1:])
    yield from (dataclasses.replace(base, nodes=nodes) for nodes in NODES[1:])
    yield from (dataclasses.replace(base, record_bytes=record) for record in RECORDS_BYTES[1:])
    yield dataclasses.replace(base, direct=True)
    yield from (dataclasses.replace(base, size_bytes=size) for size in SIZES_BYTES[1:])


def figures_of(case: Case, results: dict[str, list[dict[str, float]]], link_rate: float) -> Iterator[Figure]:
    """Yields a figure for each row beside each disk, and the share of the link for rows that it limits."""
    for key, what, ratio in thesis.TABLE:
        ours = [sample[key] for sample in results[DRIVE]]
        for disk in (name for name in results if name != DRIVE):
            samples = {DRIVE: ours, disk: [sample[key] for sample in results[disk]]}
            bar = ratio if disk == IDE and case.network == OF_THE_THESIS else None
            said = f"{case}: {what}, beside {disk}"
            yield Figure(f"{KEY}/{case.key}/{key}/{disk}", said, "MiB/s", DRIVE, samples, bar=bar)
        if key in BY_THE_LINK:
            # One of the nodes is not behind the link.
            over_link = [rate * (case.nodes - 1) / case.nodes for rate in ours]
            samples = {DRIVE: over_link, LINK: [link_rate] * len(over_link)}
            said = f"{case}: {what}, what passes the link"
            yield Figure(f"{KEY}/{case.key}/{key}/link", said, "MiB/s", DRIVE, samples, bar=LINK_BAR)


def measure_case(case: Case, settings: Settings) -> list[Figure]:
    """Measures the table once more, everything in turns."""
    at_most = case.size_bytes // MEMORY_SHARE
    with Scratch() as scratch, Lab(1, case.network, RTT) as lab, unwritten_at_most(at_most):
        iperf.start_servers(scratch, lab)
        link_rate = iperf.link_rate(lab, lab.nodes[0], True, LINK_SECONDS)
        directories = {
            DRIVE: places.on_drive(scratch, lab, case.nodes, case.size_bytes),
            IDE: places.on_model(scratch, IDE, case.size_bytes),
            DESKTOP: places.on_model(scratch, DESKTOP, case.size_bytes),
            LOCAL: scratch.disk_dir,
        }
        table = functools.partial(
            thesis.table, size_bytes=case.size_bytes, runtime_s=settings.runtime_s, record_bytes=case.record_bytes,
            direct=case.direct,
        )  # fmt: skip
        turns: dict[str, Any] = {name: functools.partial(table, directory) for name, directory in directories.items()}
        results = interleave(f"{case}:", settings.rounds, turns, [key for key, _, _ in thesis.TABLE])
        return list(figures_of(case, results, link_rate))


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures."""
    return [figure for case in chosen(cases(settings), settings) for figure in measure_case(case, settings)]
