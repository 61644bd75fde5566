"""The syntax of links, and its errors."""

from __future__ import annotations

import pytest

from lab.link import Link, bits_per_s, microseconds, parts_per_million, size_bytes
from lab.namespace import LabError


def test_units_are_parsed() -> None:
    assert bits_per_s("100mbit") == 100_000_000
    assert bits_per_s("2.5gbit") == 2_500_000_000
    assert microseconds("0.3ms") == 300
    assert size_bytes("256KiB") == 262_144
    assert parts_per_million("0.1%") == 1_000


@pytest.mark.parametrize(
    "refused",
    [
        lambda: bits_per_s("fast"),
        lambda: bits_per_s("0gbit"),
        lambda: microseconds("10"),
        lambda: microseconds("10 ms"),
        lambda: size_bytes("1GB"),
        lambda: parts_per_million("1"),
        lambda: parts_per_million("101%"),
        lambda: Link(delay_us=60_000_000),
        lambda: Link(queue_bytes=100),
        lambda: Link(rate_bits=None, queue_bytes=10_000),
        lambda: Link.parse("jitter=1ms"),
        lambda: Link.parse("rate="),
        lambda: Link.parse("spaced=perhaps"),
        lambda: Link.parse("rate=none,spaced=yes"),
        lambda: Link.parse("cross=100%"),
        lambda: Link(cross_ppm=100_000),
        lambda: Link.parse("rate=1mbit,cross=10%,cross-burst=-1"),
        lambda: Link.parse("rate=1mbit,cross=10%,cross-burst=1001"),
        lambda: Link.parse("batch=2s"),
        lambda: Link(batch_from_us=-1),
        lambda: Link.parse("late=2s"),
        lambda: Link(fair=True),
        lambda: Link.parse("fair=perhaps"),
    ],
)
def test_an_invalid_link_is_refused_in_one_sentence(refused: object) -> None:
    assert callable(refused)
    with pytest.raises(LabError) as caught:
        refused()
    assert "\n" not in str(caught.value)


def test_a_link_overrides_only_named_properties() -> None:
    base = Link(rate_bits=10_000_000, delay_us=5_000)
    assert Link.parse("loss=1%,delay=20ms", base) == Link(10_000_000, 20_000, None, 10_000)
    assert Link.parse("rate=none").rate_bits is None


def test_a_burst_is_two_milliseconds_and_a_queue_twenty() -> None:
    assert Link(1_000_000_000).token_bucket() == "tbf rate 1000000000bit burst 250000b limit 2500000b".split()
    assert Link(10_000_000).token_bucket() == "tbf rate 10000000bit burst 4096b limit 65536b".split()
    assert Link(10_000_000, queue_bytes=9_000).token_bucket()[-1] == "9000b"


def test_batching_in_each_direction_is_passed_to_the_relay() -> None:
    assert Link.parse("batch=3ms") == Link(batch_to_us=3_000, batch_from_us=3_000)
    link = Link.parse("batch-to=50us,batch-from=1ms")
    assert link.needs_relay() and not link.is_packetwise()
    assert "--batch-left-us 50 --batch-right-us 1000" in " ".join(link.relayed())
    late = Link.parse("late=3ms")
    assert late.needs_relay() and "--late-us 3000" in " ".join(late.relayed())


def test_cross_traffic_implies_a_spaced_link() -> None:
    link = Link.parse("rate=10mbit,delay=1ms,cross=50%")
    assert link == Link(10_000_000, 1_000, spaced=True, cross_ppm=500_000)
    assert "--rate-bits 10000000 --queue-bytes 65536 --cross-ppm 500000" in " ".join(link.relayed())
    assert "--rate-bits 0" in " ".join(Link(10_000_000, 1_000).relayed()), "a token bucket does it then"
    fair = Link.parse("rate=10mbit,cross=50%,fair=yes")
    assert fair == Link(10_000_000, spaced=True, cross_ppm=500_000, fair=True)
    assert ["--fair 1" in " ".join(one.relayed()) for one in (fair, link)] == [True, False]
