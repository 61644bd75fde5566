"""`cheetah probe` over a link that delivers packets in batches or late: the capacity is right, or unknown. Needs
root."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

from bench.tools.cheetah import newest_build
from cheetah.bench import verbs
from lab import relay
from lab.link import Link
from lab.network import Lab

RATE_BITS = 100_000_000
ERROR_MAX = 0.02

pytestmark = pytest.mark.usefixtures("root")


@pytest.fixture(autouse=True)
def _cheetah(monkeypatch: pytest.MonkeyPatch) -> None:
    """The binary that all tests of the command line use."""
    if program := os.environ.get("CHEETAH_STATIC") or newest_build():
        monkeypatch.setenv("CHEETAH", program)


def probe(lab: Lab) -> dict[str, Any]:
    """Measures the path from the examiner to the node."""
    argv = [*relay.beside_prefix(), verbs.binary(), "--json", "probe", lab.nodes[0].address, "--only", "capacity"]
    done = subprocess.run(lab.examiner.command(argv), capture_output=True, text=True, check=False)
    # 1 means that nothing was measured, which is allowed here.
    assert done.returncode in (0, 1), done.stderr
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[0])
    return report


@pytest.mark.timing
@pytest.mark.parametrize("direction", ["batch-to", "batch-from", "batch"])
@pytest.mark.parametrize("interval", ["50us", "300us", "1ms", "3ms"])
def test_capacity_over_a_batching_link_is_right_or_unknown(interval: str, direction: str) -> None:
    assert_right_or_unknown(f"rate=100mbit,delay=2ms,spaced=yes,{direction}={interval}")


@pytest.mark.timing
@pytest.mark.parametrize("direction", ["", ",batch-to=50us", ",batch-from=1ms"])
def test_capacity_over_a_link_that_is_sometimes_late_is_right_or_unknown(direction: str) -> None:
    assert_right_or_unknown(f"rate=100mbit,delay=5ms,spaced=yes,late=3ms{direction}")


def assert_right_or_unknown(link: str) -> None:
    """Measures a path over such a link."""
    with Lab(1, link=Link.parse(link)) as lab:
        report = probe(lab)
    capacity = report["capacity"]
    if capacity is None:
        assert report["advice"] is None and report["problems"], report
    else:
        assert abs(capacity["bits_per_s"] / RATE_BITS - 1) <= ERROR_MAX, report
