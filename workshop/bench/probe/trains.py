"""Trains of packets as received: gaps, gap errors, and rates."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable, Iterable, Sequence

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


class Which(enum.Enum):
    """Which trains of a result count. Tables show all three."""

    ALL = "all"
    UNDISTURBED = "without host disturbance"
    ACCEPTED = "accepted"


TRAINS = [f"{which.value} (trains)" for which in Which]
"""The heads of columns that show each."""


@dataclasses.dataclass(frozen=True)
class SentTrain:
    """A train that arrived whole. Times are nanoseconds of the monotonic clock."""

    arrived: list[int]
    # When its sender reports that each packet left; empty if it does not.
    left: list[int] = dataclasses.field(default_factory=list)
    # When the receiver's kernel began to process each packet; empty if that is not known.
    ingress: list[int] = dataclasses.field(default_factory=list)
    # Whether its sender's self-check accepted it; None if it has none.
    accepted: bool | None = None
    # The longest time for which the host of this virtual machine kept its sender from running; None if not known.
    host_ns: int | None = None


@dataclasses.dataclass
class TrainResults:
    """The result."""

    sent: list[SentTrain]
    # Trains sent, those that did not arrive whole included.
    trains: int = 0
    # Named by senders that check their trains.
    backend: str = ""

    def __add__(self, other: TrainResults) -> TrainResults:
        return TrainResults(self.sent + other.sent, self.trains + other.trains, other.backend or self.backend)

    @property
    def arrived(self) -> list[list[int]]:
        """Returns when the packets of each train arrived."""
        return [train.arrived for train in self.sent]

    @property
    def left(self) -> list[list[int]]:
        """Returns when the packets of each train left."""
        return [train.left for train in self.sent]

    def only(self, which: Which) -> TrainResults:
        """Returns the trains that count. A train of which the host's share is not known counts as undisturbed."""
        counts: dict[Which, Callable[[SentTrain], bool]] = {
            Which.ALL: lambda _: True,
            Which.UNDISTURBED: lambda train: not train.host_ns,
            Which.ACCEPTED: lambda train: bool(train.accepted),
        }
        return TrainResults(list(filter(counts[which], self.sent)), self.trains, self.backend)

    def count(self, which: Which) -> str:
        """Returns the number of trains that count; of all of them, also the number sent if some did not arrive whole."""
        counted = len(self.only(which).sent)
        return f"{counted} of {self.trains}" if which is Which.ALL and counted != self.trains else str(counted)

    def none(self, which: Which) -> str:
        """Returns a table's word for no train that counts: a dash if the sender has no self-check that could accept one."""
        has_check = any(train.accepted is not None for train in self.sent)
        return "none" if has_check or which is not Which.ACCEPTED else "–"

    def share(self, which: Which) -> float:
        """Returns the share of the trains that count."""
        return len(self.only(which).sent) / self.trains if self.trains else 0.0


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


def three(sent: TrainResults, judge: Callable[[TrainResults], str]) -> list[str]:
    """Returns the cells of all trains, of those without host disturbance, and of those accepted, each with its number of trains."""
    counted = ((which, sent.only(which)) for which in Which)
    return [f"{judge(some)} ({sent.count(which)})" if some.sent else sent.none(which) for which, some in counted]


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


def read_trains(printed: str) -> tuple[list[list[int]], list[list[int]], list[int | None]]:
    """Reads the report of `bench-packets`: when packets were due, when they had left, and of each train the longest time
    for which the host kept the sender from running."""
    due: list[list[int]] = []
    left: list[list[int]] = []
    host_ns: list[int | None] = []
    for block in printed.strip().split("\n\n"):
        lines = [line.split() for line in block.splitlines()]
        host_ns.append(next((int(line[1]) for line in lines if line[0] == "host"), None))
        pairs = [line for line in lines if line[0] != "host"]
        due.append([int(pair[0]) for pair in pairs])
        left.append([int(pair[1]) for pair in pairs])
    return due, left, host_ns


@dataclasses.dataclass
class Arrivals:
    """The receiver's report of packets of one size, in nanoseconds of the monotonic clock."""

    # When the driver handed each packet to the kernel.
    arrived: list[int] = dataclasses.field(default_factory=list)
    # When the kernel began to process each packet; empty where BPF is not permitted.
    ingress: list[int] = dataclasses.field(default_factory=list)
    # Packets of any size that the receiver lost.
    dropped: int = 0


def read_arrivals(lines: Iterable[str], ip_bytes: int) -> Arrivals:
    """Reads the report of the receiver of `bench-packets`."""
    found = Arrivals()
    for line in lines:
        match line.split():
            case ["dropped", count]:
                found.dropped = int(count)
                break
            case ["ingress", at, size] if int(size) == ip_bytes:
                found.ingress.append(int(at))
            case [at, size] if int(size) == ip_bytes:
                found.arrived.append(int(at))
    return found
