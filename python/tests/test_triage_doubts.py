"""What is in doubt about a source although it can be read: said by a triage in progress, summary, report and custody log."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import triage_worker
from conftest import MIB, PATIENCE_S

import cheetah
from cheetah.triage.hub import custody

CUT_SHORT = "beyond the end of the source"


@pytest.fixture
def cut(ext4: Path, tmp_path: Path) -> Path:
    """The first three quarters of a volume."""
    image = tmp_path / "cut.raw"
    image.write_bytes(ext4.read_bytes()[: 6 * MIB])
    return image


def triaged(source: str | Path, out: Path) -> tuple[str, dict[str, Any]]:
    """What a triage says on stderr, and its summary."""
    argv = [sys.executable, "-m", "cheetah.triage", str(source), "--out", str(out), "--workers", "1"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode in (0, 3), done.stderr
    return done.stderr, json.loads((out / "summary.json").read_text())


def recorded(out: Path) -> list[str]:
    """The doubts in the custody log."""
    records = [json.loads(line) for line in (out / custody.LOG).read_text().splitlines()]
    return [doubt for record in records if record["event"] == "doubts" for doubt in record["details"]["doubts"]]


@pytest.mark.parametrize("link", [False, True])
def test_a_volume_that_reaches_beyond_the_end_is_said_everywhere(
    link: bool, cut: Path, tmp_path: Path, nbdkit: Callable[..., str], binary: str
) -> None:
    out = tmp_path / "out"
    said, summary = triaged(nbdkit("-r", "file", cut) if link else cut, out)
    (doubt,) = summary["source"]["doubts"]
    assert CUT_SHORT in doubt and str(8 * MIB) in doubt
    assert f"IN DOUBT: {doubt}" in said and said.count(doubt) == 1
    assert recorded(out) == [doubt]
    page = (out / "report.html").read_text()
    assert "In doubt" in page and CUT_SHORT in page
    assert summary["verdict"] == "gaps"
    done = subprocess.run([binary, "verify", out], capture_output=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr


def test_a_whole_volume_is_not_in_doubt(tmp_path: Path) -> None:
    image, out = triage_worker.fat(tmp_path / "image.raw", {"LETTER.TXT": b"Dear Sir"}), tmp_path / "out"
    said, summary = triaged(image, out)
    assert "IN DOUBT" not in said and "In doubt" not in (out / "report.html").read_text()
    assert (summary["source"]["doubts"], recorded(out), summary["verdict"]) == ([], [], "whole")


def test_devices_and_shares_have_the_doubts_of_a_source_behind_a_link(cut: Path, nbdkit: Callable[..., str]) -> None:
    uri = nbdkit("-r", "file", cut)
    with cheetah.open(cut) as local, cheetah.open(uri) as remote, cheetah.share(uri) as share:
        (doubt,) = local.doubts
        assert CUT_SHORT in doubt
        assert remote.doubts == [doubt] and share.doubts == [doubt]


def test_a_drive_of_a_part_of_a_volume_is_in_doubt(
    cut: Path, tmp_path: Path, drive: Callable[[Path, Path], Path]
) -> None:
    with cheetah.open(drive(tmp_path / "cut.drive", cut)) as opened:
        assert any(CUT_SHORT in doubt for doubt in opened.doubts)
