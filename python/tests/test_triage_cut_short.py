"""A truncated image: the result lists the missing parts."""

import json
import struct
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import triage_images
import triage_worker
from conftest import MIB, noise
from triage_workers import Alone

from cheetah.triage.hub import run
from cheetah.triage.hub.closing import DONE, EVIDENCE
from cheetah.triage.hub.run import Run
from cheetah.triage.settings import Settings


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker, in this process."""
    monkeypatch.setattr(run, "_start_workers", lambda uri, settings: Alone(uri, settings))


def test_a_file_system_that_is_longer_than_its_image_is_a_problem(tmp_path: Path) -> None:
    image = triage_images.ext4(tmp_path)
    whole = image.stat().st_size
    with image.open("r+b") as file:
        file.truncate(whole - 5 * MIB)
    for _ in range(2):
        assert Run(Settings(str(image), str(tmp_path / "out")), lambda event: None).go()[0] == EVIDENCE
        summary = json.loads((tmp_path / "out/summary.json").read_text())
        (problem,) = [one for one in summary["problems"] if one["stage"] == "volumes"]
        assert (problem["volume"], problem["offset"], problem["length"]) == (0, whole - 5 * MIB, 5 * MIB)
        assert "the source ends before the volume" in problem["sentence"]
        assert summary["verdict"] == "gaps"


def test_a_partition_behind_the_end_of_its_image_is_a_problem(tmp_path: Path) -> None:
    image = tmp_path / "disk.raw"
    with image.open("wb") as file:
        file.truncate(8 * MIB)
    entries = [struct.pack("<B3xB3xII", 0, 0x83, *place) for place in ((2048, 4096), (8192, 8192))]
    with image.open("r+b") as file:
        file.seek(446)
        file.write(b"".join(entries).ljust(64, b"\0") + b"\x55\xaa")
    with image.open("r+b") as file:
        file.truncate(3 * MIB)
    assert Run(Settings(str(image), str(tmp_path / "out")), lambda event: None).go()[0] == EVIDENCE
    problems = json.loads((tmp_path / "out/summary.json").read_text())["problems"]
    assert [(one["offset"], one["length"]) for one in problems if one["offset"] is not None] == [(4 * MIB, 4 * MIB)]


def test_a_cut_off_file_is_an_evidence_problem_unless_the_limit_cut_it(tmp_path: Path) -> None:
    image = triage_worker.fat(tmp_path / "image.raw", {"LARGE.BIN": noise(MIB + 512, 1)})
    assert Run(Settings(str(image), str(tmp_path / "limit"), max_file=4096), lambda event: None).go()[0] == DONE
    assert state(tmp_path / "limit") == "partial"
    content = bytearray(image.read_bytes())
    struct.pack_into("<I", content, content.index(b"LARGE   BIN") + 28, 3 * MIB)
    image.write_bytes(content)
    assert Run(Settings(str(image), str(tmp_path / "longer")), lambda event: None).go()[0] == EVIDENCE
    assert state(tmp_path / "longer") == "partial"


def state(out: Path) -> str:
    """The part of the file that was read."""
    rows = pq.read_table(out / "files.parquet").to_pylist()
    return next(row["read_state"] for row in rows if row["name"] == "LARGE.BIN")
