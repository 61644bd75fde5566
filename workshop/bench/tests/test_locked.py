"""The part of locked volumes: what it lists, and its rows. No time is tested."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.images import examined
from bench.images.examined import ExaminedImage, FileSelection
from bench.parts import unlock
from bench.parts.unlock import Locked
from bench.scratch import Scratch
from bench.settings import Settings


def test_a_listing_has_a_bar_in_bitlocker_and_none_in_luks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ntfs.raw"
    path.write_bytes(b"NTFS" * 1024)
    nothing = FileSelection([], [], 0, 0)
    image = ExaminedImage(str(path), "ntfs", 4096, 0, 0, "", 0, nothing, nothing)
    monkeypatch.setattr(examined, "get", lambda kind: image)

    def around(scratch: Scratch, content: str) -> Locked:
        assert Path(content).read_bytes() == path.read_bytes()
        return Locked("volume", "keys", content)

    def in_turns(
        what: str, image: ExaminedImage, volume: Locked, settings: Settings
    ) -> dict[str, list[dict[str, float]]]:
        assert volume.path == "volume" and volume.content != str(path)
        return {unlock.OURS: [{"seconds": 1.2}], unlock.UNLOCKED: [{"seconds": 1.0}]}

    for name in ("bitlocker_around", "luks_around"):
        monkeypatch.setattr(unlock, name, around)
    monkeypatch.setattr(unlock, "list_in_turns", in_turns)
    figures = unlock.measure_listings(Settings.of(quick=True))
    assert {figure.id: figure.bar for figure in figures} == {
        "unlock/listing-bitlocker/seconds": unlock.LISTING_BAR,
        "unlock/listing-luks/seconds": None,
    }
    assert [figure.ratio() for figure in figures] == [1.2, 1.2]
    # The journal of a run keeps rounds by these words.
    assert len({figure.what for figure in figures}) == 2
