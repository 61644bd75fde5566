"""Fixtures of the tests of the boot image."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from boot import __main__ as build
from boot import cpio
from boot.error import MissingError
from boot.tests import guest
from boot.tests.shell import PACKAGES

ROOT = Path(__file__).resolve().parents[3]
CHEETAH = guest.CHEETAH
LEVEL = int(os.environ.get("CHEETAH_LIVE_LEVEL", cpio.LEVEL))


@pytest.fixture(scope="session")
def live() -> str:
    """The directory of a built image: CHEETAH_LIVE, or one that is built now; with a level of compression below the highest one,
    if CHEETAH_LIVE_LEVEL is set."""
    if built := os.environ.get("CHEETAH_LIVE"):
        return built
    if why := guest.missing():
        pytest.skip(why)
    # A commit meanwhile does not change the time stamp of the next image.
    os.environ.setdefault("SOURCE_DATE_EPOCH", str(build.epoch_s()))
    out = ROOT / "target" / ("live" if LEVEL == cpio.LEVEL else f"live-{LEVEL}")
    try:
        build.build(str(out), CHEETAH, LEVEL, PACKAGES)
    except MissingError as error:
        pytest.skip(str(error))
    return str(out)


@pytest.fixture
def room(tmp_path: Path) -> Iterator[guest.Room]:
    """A network for guests."""
    why = guest.missing()
    if why:
        pytest.skip(why)
    with guest.room(str(tmp_path)) as made:
        yield made
