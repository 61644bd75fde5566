"""Rules and keyword lists made to be slow, and files made to expand: each is bounded, and the report says what was left out."""

import io
import json
import zipfile
from pathlib import Path

import pytest
import triage_worker
from triage_workers import Alone

from cheetah.triage.hub import run
from cheetah.triage.hub.run import Run
from cheetah.triage.search import scan
from cheetah.triage.settings import Settings

ENDLESS = (
    "rule Endless { condition: for all i in (0..filesize): (for all j in (0..filesize): (uint8(i) == 97 or true)) }"
)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small windows, and little time for each."""
    monkeypatch.setattr(scan, "TIMEOUT_S", 1)
    monkeypatch.setattr(scan, "WINDOW_BYTES", 256 << 10)
    monkeypatch.setattr(scan, "OVERLAP_BYTES", 1 << 10)


def searched(engine: scan.Engine, content: bytes) -> scan.Stream:
    stream = scan.Stream(engine)
    for start in range(0, len(content), 64 << 10):
        stream.feed(content[start : start + (64 << 10)], start)
    return stream


@pytest.mark.usefixtures("hasty")
def test_a_rule_that_takes_too_long_is_not_tried_on_the_rest_which_is_searched_for_keywords() -> None:
    engine = scan.Engine(["needle"], [("slow.yar", ENDLESS)])
    content = (b"a" * 500_000 + b"needle") * 4
    stream = searched(engine, content)
    (hit,) = stream.finish()
    assert hit.offsets == [500_000 + number * 500_006 for number in range(4)]
    assert stream.trouble is not None and stream.trouble.count("were not tried to the end") == 1
    assert "what follows was searched for keywords alone" in stream.trouble


@pytest.mark.usefixtures("hasty")
def test_a_scan_without_keywords_ends_with_the_first_window_that_takes_too_long() -> None:
    engine, asked = scan.Engine([], [("slow.yar", ENDLESS)]), []
    scans = engine.scan
    engine.scan = lambda *arguments: asked.append(arguments) or scans(*arguments)  # type: ignore[method-assign]
    stream = searched(engine, b"a" * 3_000_000)
    assert stream.finish() == [] and len(asked) == 1
    assert stream.trouble is not None and "nor was what follows" in stream.trouble


def test_no_file_is_searched_for_longer_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "WINDOW_BYTES", 256 << 10)
    monkeypatch.setattr(scan, "OVERLAP_BYTES", 1 << 10)
    monkeypatch.setattr(scan, "FILE_S", -1.0)
    stream = searched(scan.Engine(["needle"]), b"a" * 1_000_000 + b"needle")
    assert stream.finish() == []
    assert stream.trouble is not None and "nothing was searched from byte 0 on" in stream.trouble


def test_a_list_whose_keywords_are_found_at_each_byte_takes_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "MATCHES_TOTAL_MAX", 500)
    found = scan.Engine(["a" * length for length in range(3, 53)]).scan(b"a" * 10_000)
    assert len(found) == 50 and {len(hit.offsets) for hit in found} == {10}
    assert all(hit.more and "10 or more matches" in hit.detail(False) for hit in found)


def test_an_archive_that_expands_is_read_as_it_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_start_workers", lambda uri, settings: Alone(uri, settings))
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(64 << 20))
    image = triage_worker.fat(tmp_path / "image.raw", {"BOMB.ZIP": bomb.getvalue()})
    (tmp_path / "slow.yar").write_text(ENDLESS)
    monkeypatch.setattr(scan, "TIMEOUT_S", 1)
    settings = Settings(str(image), str(tmp_path / "out"), yara=(str(tmp_path / "slow.yar"),), unallocated=False)
    Run(settings, lambda event: None).go()
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    assert summary["bytes"]["read"] == len(bomb.getvalue()) and summary["types"] == {"zip": 1}
    assert any("was not searched completely" in problem["sentence"] for problem in summary["problems"])
    assert "was not searched completely" in (tmp_path / "out/report.html").read_text()
