"""The links between the examiner and a site: rates and delays of a laboratory, losses, and two links of the field."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

from bench.remote import tcp
from lab.link import Link
from lab.network import Lab

DELAYS_MS = (0, 10, 20)
RATES = {"1gbit": "1 Gbit/s", "100mbit": "100 Mbit/s"}
LOSSES_PERCENT = (0, 0.1, 0.5, 1)


@dataclasses.dataclass(frozen=True)
class FarLine:
    """A link, in the notation of the lab, its name in tables, and the key of its rate, if that is one of `RATES`."""

    name: str
    link: str
    rate: str = ""

    @contextlib.contextmanager
    def lab(self) -> Iterator[Lab]:
        """Yields a lab with one machine at the end of this link, and TCP as most machines have it."""
        with Lab(1, link=Link.parse(self.link)) as lab:
            tcp.set_control(lab, tcp.USUAL)
            yield lab


def line(rate: str, delay_ms: float, loss_percent: float = 0) -> FarLine:
    """Returns a link of a rate, a delay one way, and a loss in each direction."""
    loss = f", {loss_percent:g} % loss" if loss_percent else ""
    return FarLine(f"{delay_ms:g} ms{loss}", f"rate={rate},delay={delay_ms:g}ms,loss={loss_percent:g}%", rate)


SATELLITE = FarLine("satellite: 20 Mbit/s, 250 ms one way", "rate=20mbit,delay=250ms,queue=1MiB")
"""A geostationary satellite: half a second of round trip."""
MOBILE = FarLine("4G: 30 Mbit/s, 50 ms with pauses up to 30 ms, 1 % loss", "rate=30mbit,delay=50ms,late=30ms,loss=1%")
FIELD = (SATELLITE, MOBILE)
