"""What the tests of the boot image share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from boot import __main__ as build
from boot.tests import guest

ROOT = Path(__file__).resolve().parent.parent.parent
CHEETAH = guest.CHEETAH


@pytest.fixture(scope="session")
def live() -> str:
    """The directory of a built image: CHEETAH_LIVE, or one that is built now."""
    if built := os.environ.get("CHEETAH_LIVE"):
        return built
    out = str(ROOT / "target" / "live")
    build.build(out, CHEETAH)
    return out


@pytest.fixture
def room(tmp_path: Path) -> Iterator[guest.Room]:
    """A network for guests."""
    why = guest.missing()
    if why:
        pytest.skip(why)
    with guest.room(str(tmp_path)) as made:
        yield made
