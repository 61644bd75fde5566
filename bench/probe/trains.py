"""Trains of packets as received: gaps, gap errors, and rates."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

ETHERNET_BYTES = 14
# Packets that arrive up to this long before a train is due belong to it.
EARLY_NS = 50_000


@dataclasses.dataclass(frozen=True)
class TrainRequest:
    """The requested trains: their number, packets, packet size and gap."""

    packets: int
    gap_ns: int
    trains: int
    ip_bytes: int = 1500

    @property
    def span_ns(self) -> int:
        """Returns the time from a train's first packet to its last."""
        return (self.packets - 1) * self.gap_ns


@dataclasses.dataclass
class TrainResults:
    """The result. Times are nanoseconds of the monotonic clock: when each packet of each accepted train arrived, and
    when its sender reports that it left (empty if it does not)."""

    arrived: list[list[int]]
    left: list[list[int]] = dataclasses.field(default_factory=list)
    # Trains sent, discarded ones included.
    trains: int = 0
    backend: str = ""

    def __add__(self, other: TrainResults) -> TrainResults:
        return TrainResults(
            self.arrived + other.arrived,
            self.left + other.left,
            self.trains + other.trains,
            other.backend or self.backend,
        )

    def accepted(self) -> float:
        """Returns the share of accepted trains."""
        return len(self.arrived) / self.trains if self.trains else 0.0


def percentile(values: Iterable[float], share: float) -> float:
    """Returns the smallest value that this share of all values does not exceed; NaN if there are none."""
    ordered = sorted(values)
    if not ordered:
        return math.nan
    return ordered[min(len(ordered) - 1, max(0, math.ceil(share * len(ordered)) - 1))]


def split(arrived: Sequence[int], starts: Sequence[int]) -> list[list[int]]:
    """Splits arrivals into trains by when the first packet of each was due."""
    trains: list[list[int]] = [[] for _ in starts]
    ordered = sorted(arrived)
    at = 0
    for number, train in enumerate(trains):
        end = starts[number + 1] - EARLY_NS if number + 1 < len(starts) else math.inf
        while at < len(ordered) and ordered[at] < end:
            if ordered[at] >= starts[number] - EARLY_NS:
                train.append(ordered[at])
            at += 1
    return trains


def gaps_us(trains: Iterable[Sequence[int]]) -> list[float]:
    """Returns every gap within a train, in microseconds."""
    return [(after - before) / 1000 for train in trains for before, after in zip(train, train[1:])]


def gap_errors_us(sent: TrainResults, gap_ns: int) -> list[float]:
    """Returns the absolute error of each gap, in microseconds."""
    return [abs(gap - gap_ns / 1000) for gap in gaps_us(sent.arrived)]


def stamp_errors_us(sent: TrainResults) -> list[float]:
    """Returns by how much each packet arrived after its reported departure, in microseconds."""
    pairs = (
        (left, arrived)
        for departures, train in zip(sent.left, sent.arrived)
        for left, arrived in zip(departures, train)
    )
    return [(arrived - left) / 1000 for left, arrived in pairs]


def rates_bits(trains: Iterable[Sequence[int]], ip_bytes: int) -> list[float]:
    """Returns the rate of each train, in bits a second of whole Ethernet frames."""
    return [
        (len(train) - 1) * (ip_bytes + ETHERNET_BYTES) * 8 * 1e9 / (train[-1] - train[0])
        for train in trains
        if len(train) > 1 and train[-1] > train[0]
    ]


def gap_of_rate_ns(bits_per_s: float, ip_bytes: int = 1500) -> int:
    """Returns the time from one packet to the next at a rate."""
    return round((ip_bytes + ETHERNET_BYTES) * 8 * 1e9 / bits_per_s)


def read_trains(printed: str) -> tuple[list[list[int]], list[list[int]]]:
    """Reads the report of `bench-packets`: when packets were due, and when they had left."""
    due: list[list[int]] = []
    left: list[list[int]] = []
    for block in printed.strip().split("\n\n"):
        pairs = [line.split() for line in block.splitlines()]
        due.append([int(pair[0]) for pair in pairs])
        left.append([int(pair[1]) for pair in pairs])
    return due, left


def read_arrivals(lines: Iterable[str], ip_bytes: int) -> tuple[list[int], int]:
    """Reads its receiver's report: when packets of that size arrived, and how many of any size were dropped."""
    arrived: list[int] = []
    for line in lines:
        first, second = line.split()
        if first == "dropped":
            return arrived, int(second)
        if int(second) == ip_bytes:
            arrived.append(int(first))
    return arrived, 0
