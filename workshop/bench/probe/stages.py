"""Where the microseconds go: the same packets stamped when the sender's driver took them, when the receiver's driver handed
them over, and when the receiver's kernel began to process them. If the sender is late, so are all three."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence

from bench.probe.senders import PROGRAMS, SEQUENTIAL, Sender, ours
from bench.probe.stand import JUDGES, PLAIN, RPS, THREADED, Stand, burners, stand
from bench.probe.tables import Table
from bench.probe.trains import SentTrain, TrainRequest, TrainResults, Which, percentile
from bench.settings import Settings
from cheetah.bench.failure import BenchError
from cheetah.bench.units import short
from lab.namespace import LabError

PACKETS, GAP_US = 50, 242
GAP_NS = GAP_US * 1000
SENDERS: dict[str, Sender] = {
    "xdp": ours("--backend", "xdp"),
    "ring": ours("--backend", "ring"),
    SEQUENTIAL: PROGRAMS[SEQUENTIAL],
}
# Busy loops a processor.
LOADS = (0, 1, 2)
# A packet that waits for a thread behind busy loops waits for milliseconds.
WAITS_US = 100.0
NOTE = (
    "Gap errors and delays are p50 / p99 in µs. Departures are the kernel's stamps at the driver; of AF_XDP after it, when a frame is completed; "
    f"of `{SEQUENTIAL}`, which takes none, the end of the call that sent the packet. Arrivals are stamped when the veth driver hands a packet over, in "
    "the sender's own call, and with threaded NAPI by the thread; processing is stamped by a BPF program at the ingress hook. There is no stamp by "
    "BPF at egress: that hook is in the kernel's way to queue disciplines (dev_queue_xmit), and packets of AF_XDP and of the ring "
    "(PACKET_QDISC_BYPASS) go to the driver around it (dev_direct_xmit)."
)
# The trains of each judge, load and sender.
Measured = Mapping[tuple[str, int, str], TrainResults]


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


def _p99(values: Sequence[float]) -> float | None:
    return percentile(values, 0.99) if values else None


def _spread_us(delays: Sequence[float]) -> float | None:
    """Returns by how much delays vary: a constant one changes no gap."""
    return percentile(delays, 0.99) - percentile(delays, 0.5) if delays else None


def parts_us(sent: TrainResults) -> dict[str, float]:
    """Returns the parts of sender, veth pair and receiver in p99 of a gap's error, as far as they are stamped."""
    stamped = [train for train in sent.sent if train.left and None not in train.left]
    begun = [train for train in sent.sent if train.ingress]
    parts = {
        "the sender": _p99(errors_us((train.left for train in stamped), GAP_NS)),
        "the veth pair": _spread_us(delays_us((train.left, train.arrived) for train in stamped)),
        "the receiver": _spread_us(delays_us((train.arrived, train.ingress) for train in begun)),
    }
    return {whose: part for whose, part in parts.items() if part is not None}


def _shares(measured: Measured) -> list[str]:
    """Returns, for each sender, which part is whose under the highest load."""
    said = []
    for name in SENDERS:
        sent = measured.get((PLAIN, LOADS[-1], name), TrainResults([])).only(Which.UNDISTURBED)
        if parts := parts_us(sent):
            said.append(f"{name}: " + ", ".join(f"{short(part)} µs {whose}" for whose, part in parts.items()))
    return said


def _longest_wait_us(measured: Measured, loops: int) -> float | None:
    """Returns the largest p99 of the senders' times from arrival to processing, where packets are processed as they come."""
    found = [
        sent.only(Which.UNDISTURBED).sent
        for (judge, load, _), sent in measured.items()
        if (judge, load) == (PLAIN, loops)
    ]
    waits = [_p99(delays_us((train.arrived, train.ingress) for train in trains if train.ingress)) for trains in found]
    return max((wait for wait in waits if wait is not None), default=None)


def _arrival_p99_us(measured: Measured, judge: str) -> float | None:
    sent = measured.get((judge, LOADS[-1], "xdp"), TrainResults([]))
    return _p99(errors_us(sent.only(Which.UNDISTURBED).arrived, GAP_NS))


def conclusion(measured: Measured) -> str:
    """Says whose the microseconds are, and whether arrivals wait behind busy loops, by these figures."""
    sentences = []
    if shares := _shares(measured):
        sentences.append(
            f"With {LOADS[-1]} busy loops a processor, trains without host disturbance: p99 of the error at departure is the sender's part, and "
            f"p99 − p50 of the delays that follow those of the others. {'; '.join(shares)}."
        )
    idle, busy = (_longest_wait_us(measured, loops) for loops in (LOADS[0], LOADS[-1]))
    if idle is not None and busy is not None:
        verdict = "refuted" if busy < WAITS_US else "not refuted"
        sentences.append(
            "The hypothesis that packets wait at the receiver, for ksoftirqd behind busy loops, is "
            f"{verdict}: from arrival to processing p99 is at most {short(busy)} µs with {LOADS[-1]} busy loops a processor, {short(idle)} µs idle."
        )
    plain = _arrival_p99_us(measured, PLAIN)
    for judge in (RPS, THREADED):
        isolated = _arrival_p99_us(measured, judge)
        if plain is not None and isolated is not None:
            sentences.append(
                f"With the judge `{judge}`, p99 of the error at arrival by xdp is then {short(isolated)} µs, beside {short(plain)} µs."
            )
    return " ".join(sentences)


def _judges() -> list[str]:
    return [PLAIN, RPS, *([THREADED] if shutil.which("ethtool") else [])]


def _measure(at: Stand, judge: str, asked: TrainRequest) -> dict[tuple[str, int, str], TrainResults]:
    """Sends the same trains by each sender, idle and with busy processors."""
    measured = {}
    for loops in LOADS:
        with burners(loops * (os.cpu_count() or 1)):
            for name, sender in SENDERS.items():
                measured[judge, loops, name] = sender(at, asked)
    return measured


def _rows(measured: Measured) -> list[list[str]]:
    rows = []
    for (judge, loops, name), sent in measured.items():
        for which in Which:
            counted = sent.only(which)
            cells = row(counted, GAP_NS) if counted.sent else [sent.none(which)] * 5
            rows.append([judge, str(loops), name, f"{which.value} ({sent.count(which)})", *cells])
    return rows


def table(at: Stand, settings: Settings) -> Table:
    """Measures with each judge: arrivals processed as they come at this stand, and isolated at others."""
    asked = TrainRequest(PACKETS, GAP_NS, 10 if settings.quick else 60)
    measured: dict[tuple[str, int, str], TrainResults] = {}
    notes = [NOTE]
    for judge in _judges():
        try:
            judged: contextlib.AbstractContextManager[Stand] = (
                contextlib.nullcontext(at) if judge == PLAIN else stand(judge)
            )
            with judged as used:
                measured |= _measure(used, judge, asked)
            notes.append(f"Judge `{judge}`: {JUDGES[judge]}.")
        except (BenchError, LabError) as error:
            if judge == PLAIN:
                raise
            notes.append(f"Judge `{judge}`: not measured ({str(error).splitlines()[0]}).")
    heads = [
        "judge",
        "busy loops a processor",
        "sender",
        "trains",
        "departure",
        "arrival",
        "processing",
        "to arrival",
        "to processing",
    ]
    made = Table(f"Where the microseconds go: gaps of {GAP_US} µs", heads, _rows(measured))
    made.note = " ".join([*notes, conclusion(measured)])
    print(f"  {made.title}", flush=True)
    return made
