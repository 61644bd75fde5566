"""A triage on a disk that has too little room, or that becomes full."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import triage_worker
from conftest import PATIENCE_S, run
from triage_workers import Alone

from cheetah.triage.hub import run as triage_run
from cheetah.triage.hub import space
from cheetah.triage.hub.closing import DONE
from cheetah.triage.hub.folder import LOCK
from cheetah.triage.hub.run import Run
from cheetah.triage.outputs import OUTPUTS
from cheetah.triage.settings import Settings
from cheetah.triage.tables import notable
from cheetah.triage.task import Event

# Without a finding there is no hash in the list.
MAY_BE_EMPTY = ("journal.jsonl", notable.MD5S)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A volume with some files."""
    return triage_worker.fat(tmp_path / "image.raw", {f"LETTER{number}.TXT": b"Dear Sir" for number in range(9)})


@pytest.fixture
def small(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system of `request.param` MiB."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    folder = tmp_path / "small"
    folder.mkdir()
    run("mount", "-t", "tmpfs", "-o", f"size={request.param}M", "none", folder)
    try:
        yield folder
    finally:
        run("umount", folder)


@pytest.mark.parametrize("small", [1], indirect=True)
def test_a_triage_does_not_begin_where_its_result_has_no_room(small: Path, image: Path) -> None:
    argv = [sys.executable, "-m", "cheetah.triage", str(image), "--out", str(small / "a/out")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1 and done.stderr.count("free some space") == 1, done.stderr
    assert "16 MiB" in done.stderr and "nothing was written" in done.stderr
    assert list(small.iterdir()) == []


def fill(folder: Path) -> Path:
    """Leaves no space on the file system of a folder."""
    filler = folder / "filler"
    with pytest.raises(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return filler


@pytest.mark.parametrize("stage", ["volumes", "listing", "content", "merging", "report"])
@pytest.mark.parametrize("small", [20], indirect=True)
def test_a_disk_that_becomes_full_leaves_no_half_made_file_and_the_run_resumes(
    stage: str, small: Path, image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triage_run, "_start_workers", lambda uri, settings: Alone(uri, settings))
    out = small / "out"
    fillers: list[Path] = []

    def tell(event: Event) -> None:
        if event.stage == stage and not fillers:
            fillers.append(fill(small))

    with pytest.raises(OSError, match="No space left|free some space"):
        Run(Settings(str(image), str(out)), tell).go()
    left = [path for path in out.rglob("*") if path.is_file() and path.name != LOCK]
    assert not [path for path in left if path.stat().st_size == 0 and path.name not in MAY_BE_EMPTY], left
    assert not [path for path in left if path.name.endswith(".partial")]
    fillers[0].unlink()
    assert Run(Settings(str(image), str(out)), lambda event: None).go()[0] == DONE
    assert all((out / name).stat().st_size for name in OUTPUTS if name not in MAY_BE_EMPTY)


def test_space_for_the_tables_is_looked_at_once_the_entries_are_known(tmp_path: Path) -> None:
    space.check_rows(tmp_path, 1000)
    with pytest.raises(OSError, match="free some space; the same command then resumes the run"):
        space.check_rows(tmp_path, 1 << 50)


def test_a_source_that_cannot_be_opened_leaves_no_folder(tmp_path: Path) -> None:
    empty = tmp_path / "empty.raw"
    empty.write_bytes(b"")
    argv = [sys.executable, "-m", "cheetah.triage", str(tmp_path / "absent.E01"), "--out", str(tmp_path / "out")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode != 0 and not (tmp_path / "out").exists(), done.stderr


@pytest.mark.parametrize("how", ["hard", "symbolic"])
def test_no_other_file_is_written_to_through_a_link_in_the_folder(
    how: str, image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triage_run, "_start_workers", lambda uri, settings: Alone(uri, settings))
    out = tmp_path / "out"
    assert Run(Settings(str(image), str(out)), lambda event: None).go()[0] == DONE
    names = [LOCK, "journal.jsonl", "triage.json.partial", *(f"{name}.partial" for name in OUTPUTS)]
    names += ["parts/listing.arrow.partial", "parts/listing.arrow"]
    for name in names:
        other = tmp_path / "other"
        other.write_bytes(b"another file, without an end of line")
        place = out / name
        kept = place.read_bytes() if place.exists() else None
        place.unlink(missing_ok=True)
        (place.hardlink_to if how == "hard" else place.symlink_to)(other)
        try:
            Run(Settings(str(image), str(out), fresh=name == "triage.json.partial"), lambda event: None).go()
        except OSError as error:
            assert "left as it is" in str(error), error
        assert other.read_bytes() == b"another file, without an end of line", name
        place.unlink(missing_ok=True)
        if kept is not None:
            place.write_bytes(kept)


def test_starting_over_removes_nothing_from_a_folder_of_another_program(tmp_path: Path, image: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for name in ("triage.json", "files.parquet"):
        (out / name).write_text('{"theirs": true}')
    argv = [sys.executable, "-m", "cheetah.triage", str(image), "--out", str(out), "--fresh"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 2 and "name another directory" in done.stderr, done.stderr
    assert sorted(path.name for path in out.iterdir()) == ["files.parquet", "triage.json"]
