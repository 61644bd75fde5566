"""Where the microseconds go: the same packets stamped when the sender's driver took them, when the receiver's driver handed
them over, and when the receiver's kernel began to process them. If the sender is late, so are all three."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from bench.probe.senders import PROGRAMS, SEQUENTIAL, Sender, ours
from bench.probe.stand import Stand, burners
from bench.probe.tables import Table
from bench.probe.trains import SentTrain, TrainRequest, TrainResults, Which, percentile
from bench.settings import Settings
from cheetah.bench.units import short

PACKETS, GAP_US = 50, 242
SENDERS: dict[str, Sender] = {
    "xdp": ours("--backend", "xdp"),
    "ring": ours("--backend", "ring"),
    SEQUENTIAL: PROGRAMS[SEQUENTIAL],
}
NOTE = (
    "Gap errors and delays are p50 / p99 in µs. Departures are the kernel's stamps at the driver (AF_XDP: after it, when a frame is completed; `sequential`: the end of the call that sent it); arrivals are stamped when the "
    "veth driver hands a packet over, in the sender's own call; processing is stamped by a BPF program at the ingress hook. "
    "Judge: {judge}."
)


def _spread(values: Sequence[float]) -> str:
    return " / ".join(short(percentile(values, share)) for share in (0.5, 0.99)) if values else "not stamped"


def errors_us(trains: Iterable[Sequence[int]], gap_ns: int) -> list[float]:
    """Returns the error of each gap of these stamps."""
    return [abs(after - before - gap_ns) / 1000 for train in trains for before, after in zip(train, train[1:])]


def delays_us(pairs: Iterable[tuple[Sequence[int], Sequence[int]]]) -> list[float]:
    """Returns the time from the first stamp of each packet to its second."""
    return [(after - before) / 1000 for first, second in pairs for before, after in zip(first, second)]


def row(sent: TrainResults, gap_ns: int) -> list[str]:
    """Returns the cells of a sender: gap errors at each stage, and the delays between stages."""
    # A departure may be unknown, and BPF may not be permitted.
    stamped: list[SentTrain] = [train for train in sent.sent if train.left and None not in train.left]
    begun = [train for train in sent.sent if train.ingress]
    return [
        _spread(errors_us((train.left for train in stamped), gap_ns)),
        _spread(errors_us((train.arrived for train in sent.sent), gap_ns)),
        _spread(errors_us((train.ingress for train in begun), gap_ns)),
        _spread(delays_us((train.left, train.arrived) for train in stamped)),
        _spread(delays_us((train.arrived, train.ingress) for train in begun)),
    ]


def table(at: Stand, settings: Settings) -> Table:
    """Sends the same trains by each backend, idle and with busy processors."""
    heads = [
        "busy loops a processor",
        "sender",
        "trains",
        "departure",
        "arrival",
        "processing",
        "to arrival",
        "to processing",
    ]
    made = Table(f"Where the microseconds go: gaps of {GAP_US} µs", heads, note=NOTE.format(judge=at.judged_by))
    asked = TrainRequest(PACKETS, GAP_US * 1000, 10 if settings.quick else 60)
    for loops in (0, 1, 2):
        with burners(loops * (os.cpu_count() or 1)):
            for name, sender in SENDERS.items():
                sent = sender(at, asked)
                for which in (Which.ALL, Which.UNDISTURBED):
                    counted = sent.only(which)
                    trains = f"{which.value} ({len(counted.sent)})"
                    made.rows.append([str(loops), name, trains, *row(counted, asked.gap_ns)])
    print(f"  {made.title}", flush=True)
    return made
