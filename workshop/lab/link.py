"""The properties of a link, and their notation on the command line."""

from __future__ import annotations

import dataclasses
import re

from lab.namespace import LabError

RATES = {"bit": 1, "kbit": 1_000, "mbit": 1_000_000, "gbit": 1_000_000_000}
KEYS = (
    "rate=",
    "delay=",
    "queue=",
    "loss=",
    "spaced=yes|no",
    "cross=",
    "cross-burst=",
    "fair=yes|no",
    "batch=",
    "batch-to=",
    "batch-from=",
    "late=",
)
SIZES = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
TIMES_US = {"us": 1, "ms": 1_000, "s": 1_000_000}

MILLION = 1_000_000
FRAME_BYTES_MAX = 1514
CROSS_BURST_MAX = 1000
# The bytes that may leave at once after a pause. With less than a super-frame, the kernel would cut it into packets;
# timers that are late by this much cost no rate.
BURST_MS = 2
BURST_BYTES_MIN = 4 << 10
# The default queue: this much of the link's rate, like that of an ordinary switch.
QUEUE_MS = 20
QUEUE_BYTES_MIN = 64 << 10


def _number(text: str, units: dict[str, int], what: str, example: str) -> float:
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([a-zA-Z]*)", text)
    if not found or found[2] not in units:
        raise LabError(f"'{text}' is not a {what}; write a number and a unit, such as {example}")
    return float(found[1]) * units[found[2]]


def bits_per_s(text: str) -> int:
    """Reads `100mbit` as bits a second."""
    rate = round(_number(text, RATES, "rate", "10mbit, 100mbit, 1gbit"))
    if not 8_000 <= rate <= 100_000_000_000:
        raise LabError(f"the lab cannot make a rate of '{text}'; choose from 8kbit to 100gbit")
    return rate


def microseconds(text: str) -> int:
    """Reads `300us`, `0.3ms` or `1s` as whole microseconds."""
    return round(_number(text, TIMES_US, "time", "300us, 0.3ms, 1s"))


def size_bytes(text: str) -> int:
    """Reads `256KiB` as bytes."""
    return round(_number(text, SIZES, "size", "64KiB, 1MiB"))


def parts_per_million(text: str) -> int:
    """Reads `0.1%` as a share of a million."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)%", text)
    if not found or float(found[1]) > 100:
        raise LabError(f"'{text}' is not a share; write a percentage, such as 0.1%")
    return round(float(found[1]) * 10_000)


@dataclasses.dataclass(frozen=True)
class Link:
    """A node's link, the same in each direction.

    `rate_bits` counts whole Ethernet frames, header included, as `tc` does (no preamble, check sequence or gap);
    None is without limit. `delay_us` is one way. `queue_bytes` wait where the rate is exceeded, then frames are
    dropped; None is 20 ms of the rate, at least 64 KiB. `loss_ppm` frames in a million are lost, at random.

    `spaced` is for measuring with single packets: frames leave one by one, each as long after the one before as it
    takes on such a wire, where otherwise many may leave at once after a pause. `cross_ppm` millionths of a spaced link
    carry cross traffic towards the node; its frames are not there, only the time that they take. `cross_burst` of them
    arrive together; 0 spaces them evenly. Frames and cross traffic leave in the order of their arrival, or with `fair` by deficit
    round robin, as in fq_codel and CAKE.

    Towards the node, frames are delivered in batches, every `batch_to_us` microseconds, and from the node every
    `batch_from_us`, as by interrupt coalescing; 0 delivers each by itself.

    With `late_us`, delivery pauses now and then, for a tenth of that up to all of it, in each direction by itself, as
    that of a busy relay does. Packets that fall due meanwhile are delivered at once at the end.
    """

    rate_bits: int | None = 1_000_000_000
    delay_us: int = 0
    queue_bytes: int | None = None
    loss_ppm: int = 0
    spaced: bool = False
    cross_ppm: int = 0
    cross_burst: int = 1
    fair: bool = False
    batch_to_us: int = 0
    batch_from_us: int = 0
    late_us: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.delay_us <= 10_000_000:
            raise LabError(f"a delay of {self.delay_us} µs is outside 0 to 10 s")
        if self.queue_bytes is not None and self.rate_bits is None:
            raise LabError("a queue needs a rate: without a rate, no frame waits")
        if self.queue_bytes is not None and self.queue_bytes < FRAME_BYTES_MAX:
            raise LabError(f"a queue of {self.queue_bytes} bytes holds no frame; the least is {FRAME_BYTES_MAX}")
        if self.spaced and self.rate_bits is None:
            raise LabError("spacing needs a rate; give the link one")
        if self.cross_ppm and not self.spaced:
            raise LabError("cross traffic needs a spaced link; add spaced=yes")
        if self.fair and not self.spaced:
            raise LabError("fair queueing needs a spaced link; add spaced=yes")
        if not 0 <= self.cross_ppm < MILLION:
            raise LabError("cross traffic must use less than all of a link")
        if not 0 <= self.cross_burst <= CROSS_BURST_MAX:
            raise LabError(f"a burst of cross traffic has 0 to {CROSS_BURST_MAX} frames")
        if not 0 <= min(self.batch_to_us, self.batch_from_us) <= max(self.batch_to_us, self.batch_from_us) <= MILLION:
            raise LabError("a batch is gathered for 0 to 1 s")
        if not 0 <= self.late_us <= MILLION:
            raise LabError("delivery is late by 0 to 1 s")

    @classmethod
    def parse(cls, text: str, base: Link | None = None) -> Link:
        """Reads `rate=100mbit,delay=10ms,queue=256KiB,loss=0.1%`; omitted values are those of `base`."""
        link = base or cls()
        for item in text.split(","):
            key, _, value = item.partition("=")
            match key:
                case "rate":
                    link = dataclasses.replace(link, rate_bits=None if value == "none" else bits_per_s(value))
                case "delay":
                    link = dataclasses.replace(link, delay_us=microseconds(value))
                case "queue":
                    link = dataclasses.replace(link, queue_bytes=size_bytes(value))
                case "loss":
                    link = dataclasses.replace(link, loss_ppm=parts_per_million(value))
                case "spaced" if value in ("yes", "no"):
                    link = dataclasses.replace(link, spaced=value == "yes")
                case "cross":
                    # Cross traffic needs a spaced link, so it implies one.
                    link = dataclasses.replace(link, spaced=True, cross_ppm=parts_per_million(value))
                case "cross-burst" if value.isdecimal():
                    link = dataclasses.replace(link, cross_burst=int(value))
                case "fair" if value in ("yes", "no"):
                    fair = value == "yes"
                    # The same holds for fair queueing.
                    link = dataclasses.replace(link, spaced=link.spaced or fair, fair=fair)
                case "batch":
                    time_us = microseconds(value)
                    link = dataclasses.replace(link, batch_to_us=time_us, batch_from_us=time_us)
                case "batch-to":
                    link = dataclasses.replace(link, batch_to_us=microseconds(value))
                case "batch-from":
                    link = dataclasses.replace(link, batch_from_us=microseconds(value))
                case "late":
                    link = dataclasses.replace(link, late_us=microseconds(value))
                case _:
                    raise LabError(f"'{item}' is not a property of a link; there are {', '.join(KEYS)}")
        return link

    def needs_delay_line(self) -> bool:
        """Whether the link needs more than a rate: netem or the relay provides it."""
        return self.delay_us > 0 or self.loss_ppm > 0

    def needs_relay(self) -> bool:
        """Whether netem cannot make the link."""
        return self.spaced or self.batch_to_us > 0 or self.batch_from_us > 0 or self.late_us > 0

    def is_packetwise(self) -> bool:
        """Whether treating a super-frame as one packet would be wrong for the packets in it."""
        return self.loss_ppm > 0 or self.spaced

    def _queue_bytes(self) -> int:
        return self.queue_bytes or max((self.rate_bits or 0) * QUEUE_MS // 8_000, QUEUE_BYTES_MIN)

    def token_bucket(self) -> list[str]:
        """The arguments of `tc` for the rate and the queue."""
        rate_bits = self.rate_bits or 0
        burst = max(rate_bits * BURST_MS // 8_000, BURST_BYTES_MIN)
        return ["tbf", "rate", f"{rate_bits}bit", "burst", f"{burst}b", "limit", f"{self._queue_bytes()}b"]

    def netem(self) -> list[str]:
        """The arguments of `tc` for delay and loss. Frames in flight are not a queue: their number is not limited."""
        loss = ["loss", f"{self.loss_ppm / 10_000}%"] if self.loss_ppm else []
        return ["netem", "delay", f"{self.delay_us}us", *loss, "limit", "100000"]

    def relayed(self) -> list[str]:
        """The relay's options for delay and loss, and for the rate of a spaced link."""
        options = ["--delay-us", str(self.delay_us), "--loss-ppm", str(self.loss_ppm)]
        rate_bits, queue_bytes = (self.rate_bits or 0, self._queue_bytes()) if self.spaced else (0, 0)
        options += ["--rate-bits", str(rate_bits), "--queue-bytes", str(queue_bytes)]
        options += ["--cross-ppm", str(self.cross_ppm), "--cross-burst", str(self.cross_burst)]
        options += ["--fair", str(int(self.fair)), "--late-us", str(self.late_us)]
        # The node is to the left of its relay.
        return [*options, "--batch-left-us", str(self.batch_to_us), "--batch-right-us", str(self.batch_from_us)]
