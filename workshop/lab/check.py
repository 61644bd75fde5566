"""Checks the lab's accuracy: round trips within 0.3 ms, rates within 3 %."""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
import sys
from collections.abc import Iterator, Sequence

from lab import flow, ping, relay
from lab.link import Link
from lab.namespace import LabError, Namespace
from lab.network import Lab

ROUND_TRIPS_MS = (0.0, 0.3, 10.0, 20.0, 40.0)
ROUND_TRIP_BOUND_MS = 0.3
ROUND_TRIPS_COUNTED = 100
RATES_MBIT = (10, 100, 1000)
RATE_BOUND = 0.03
PORT = 7


@dataclasses.dataclass(frozen=True)
class Finding:
    """A property requested of a link, and its measurement."""

    what: str
    unit: str
    requested: float
    measured: float
    bound: float

    def within(self) -> bool:
        """Returns whether the measurement is within the bound."""
        return abs(self.measured - self.requested) <= self.bound

    def line(self) -> str:
        """Returns the line to print."""
        return (
            f"{self.what:<34} asked {self.requested:>7g} {self.unit:<6} measured {self.measured:>9.3f}"
            f"   {'within' if self.within() else 'NOT within'} {self.bound:g}"
        )


@contextlib.contextmanager
def _serving(machine: Namespace, argv: Sequence[str]) -> Iterator[None]:
    """Runs a server on one of the machines that prints `ready`."""
    process = subprocess.Popen(machine.command(argv), stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise LabError(f"{' '.join(argv)} did not start")
        yield
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def round_trip_ms(lab: Lab, round_trips: int = ROUND_TRIPS_COUNTED) -> float:
    """Returns the median round trip between the examiner and the first node, as `ping` measures it."""
    # On a busy machine, waiting for a processor is not part of the round trip.
    argv = [*relay.real_time_prefix(), sys.executable, ping.__file__, lab.nodes[0].address, str(round_trips)]
    return float(lab.examiner.run(argv)) / 1000


def rate_mbit(lab: Lab, seconds: float, towards_examiner: bool = True) -> float:
    """Returns the rate of the first node's link in one direction, in Mbit/s of whole frames; see `flow`."""
    ends = (lab.nodes[0].namespace, lab.nodes[0].address, lab.examiner)
    if not towards_examiner:
        ends = (lab.examiner, lab.examiner_address, lab.nodes[0].namespace)
    sender, address, receiver = ends
    argv = [sys.executable, flow.__file__]
    with _serving(sender, [*argv, "serve", address, str(PORT), str(seconds + 1)]):
        return float(receiver.run([*argv, "ask", address, str(PORT), str(seconds)])) / 1e6


def findings(seconds: float) -> Iterator[Finding]:
    """Measures all properties, each rate for that many `seconds`."""
    for asked_ms in ROUND_TRIPS_MS:
        with Lab(1, link=Link(delay_us=round(asked_ms * 500))) as lab:
            yield Finding("round trip, 1 Gbit/s", "ms", asked_ms, round_trip_ms(lab), ROUND_TRIP_BOUND_MS)
    for asked_mbit in RATES_MBIT:
        for delay_ms in (0, 10):
            with Lab(1, link=Link(asked_mbit * 1_000_000, delay_ms * 1_000)) as lab:
                for towards_examiner, way in ((True, "to the examiner"), (False, "from the examiner")):
                    measured = rate_mbit(lab, seconds, towards_examiner)
                    what = f"rate {way}, {2 * delay_ms} ms"
                    yield Finding(what, "Mbit/s", asked_mbit, measured, asked_mbit * RATE_BOUND)


def report(seconds: float) -> bool:
    """Prints every finding; returns whether all are within bounds."""
    good = True
    for finding in findings(seconds):
        print(finding.line(), flush=True)
        good = good and finding.within()
    return good
