"""Tasks that were given up are missing from the result, and it says so."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import triage_images
from conftest import program
from conftest import run as program_run
from triage_listing import by_fls
from triage_workers import Alone

from cheetah.triage.hub import run
from cheetah.triage.hub.closing import DONE, EVIDENCE
from cheetah.triage.hub.run import Run
from cheetah.triage.listing import walk
from cheetah.triage.settings import Settings
from cheetah.triage.task import Task


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ext4 volume."""
    return triage_images.ext4(tmp_path_factory.mktemp("image"))


def triage(image: Path, out: Path, ends_workers: Callable[[Task], bool], monkeypatch: pytest.MonkeyPatch) -> int:
    """A run whose workers do not survive some tasks; its exit code."""
    monkeypatch.setattr(run, "_start_workers", lambda uri, settings: Alone(uri, settings, ends_workers))
    return Run(Settings(str(image), str(out)), lambda event: None).go()[0]


def test_a_directory_that_kills_workers_costs_no_other(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "ENTRIES_FIRST", 5)
    monkeypatch.setattr(walk, "ENTRIES_MAX", 5)

    def ends_workers(task: Task) -> bool:
        return task.stage == "listing" and any(start[1] == "d1/" for start in task.what)

    assert triage(image, tmp_path, ends_workers, monkeypatch) == EVIDENCE
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert not summary["complete"]
    assert [one["path"] for one in summary["problems"] if one["path"]] == ["/d1"]
    assert not (tmp_path / "bodyfile.txt").exists()
    lines = (tmp_path / "bodyfile.unfinished.txt").read_bytes().splitlines()
    assert lines == [line for line in by_fls(image) if b"|/d1/" not in line]
    assert triage(image, tmp_path, lambda task: False, monkeypatch) == DONE
    assert (tmp_path / "bodyfile.txt").read_bytes().splitlines() == by_fls(image)


def test_a_failed_search_for_volumes_is_not_complete(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert triage(image, tmp_path, lambda task: task.stage == "volumes", monkeypatch) == EVIDENCE
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert not summary["complete"]
    assert summary["verdict"] == "stopped"
    report = (tmp_path / "report.html").read_text()
    assert "may be encrypted" not in report
    assert "The file systems could not be determined" in report
    assert triage(image, tmp_path, lambda task: False, monkeypatch) == DONE


def test_directories_with_several_names_are_listed_once_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = tmp_path / "tangled.raw"
    requests, path = [], ""
    for level in range(12):
        requests += [f"mkdir {path}/a{level}", f"link {path}/a{level} {path}/b{level}"]
        path += f"/a{level}"
    (tmp_path / "requests").write_text("\n".join(requests))
    program_run(program("mkfs.ext4"), "-q", "-F", image, "8M")
    program_run(program("debugfs"), "-w", "-f", tmp_path / "requests", image)
    monkeypatch.setattr(walk, "DIRECTORIES_SPARE", 10)
    monkeypatch.setattr(walk, "INODES_COUNTED", 1000)
    for entries in (200, 7):
        monkeypatch.setattr(walk, "ENTRIES_FIRST", entries)
        out = tmp_path / f"out{entries}"
        assert triage(image, out, lambda task: False, monkeypatch) == EVIDENCE
        lines = (out / "bodyfile.txt").read_bytes().splitlines()
        assert sum(b"|/a0/" in line or b"|/b0/" in line for line in lines) == 22
        problems = json.loads((out / "summary.json").read_text())["problems"]
        assert len([one for one in problems if "another name" in one["sentence"]]) == 12
    assert triage(image, out, lambda task: False, monkeypatch) == EVIDENCE
    assert (out / "bodyfile.txt").read_bytes().splitlines() == lines
