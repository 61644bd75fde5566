"""Evidence is found before anything is written, wherever it is behind a target."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from bench_targets import _own_tmp, as_root, names, soon, with_fuse  # noqa: F401
from conftest import MIB, PATIENCE_S, run

from cheetah.bench import verbs
from cheetah.bench.failure import Refused
from cheetah.bench.storage.options import command
from cheetah.bench.storage.run import safety
from cheetah.bench.storage.run.prepare import prepare
from cheetah.bench.storage.settings import Settings
from cheetah.bench.storage.targets import filesystem, mounts, work


@pytest.fixture(name="case")
def _case(tmp_path: Path) -> Path:
    """The directory of a case, without evidence yet."""
    folder = tmp_path / "case42"
    folder.mkdir()
    return folder


def asked(tmp_path: Path, *given: str | Path) -> Settings:
    return command.parse([str(word) for word in given] + ([] if "--out" in given else ["--out", str(tmp_path / "out")]))


def refused(settings: Settings) -> str:
    with pytest.raises(Refused) as error:
        safety.check(settings)
    return str(error.value)


def test_a_directory_without_evidence_is_accepted(tmp_path: Path, case: Path) -> None:
    (case / "notes.txt").write_text("custody")
    assert safety.check(asked(tmp_path, case)) == []


@pytest.mark.parametrize("where", ["disk.E01.custody", "deep/er/still/disk.drive.custody", "DISK.RAW.CUSTODY"])
def test_a_log_inside_is_found_and_named(tmp_path: Path, case: Path, where: str) -> None:
    log = case / where
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("log")
    said = refused(asked(tmp_path, case))
    assert str(log) in said and "--beside-evidence" in said
    assert refused(asked(tmp_path, case, "--sweep", "fs=ext4"))
    (said,) = safety.check(asked(tmp_path, case, "--beside-evidence"))
    assert str(log) in said


def test_a_log_above_is_found(tmp_path: Path, case: Path) -> None:
    (case / "disk.E01.custody").write_text("log")
    scratch = case / "scratch" / "fast"
    scratch.mkdir(parents=True)
    assert str(case / "disk.E01.custody") in refused(asked(tmp_path, scratch))


def test_a_log_beside_the_directory_is_ignored(tmp_path: Path, case: Path) -> None:
    other = tmp_path / "case41"
    other.mkdir()
    (other / "disk.E01.custody").write_text("log")
    (case / "link").symlink_to(other)
    assert safety.check(asked(tmp_path, case)) == []


def test_results_are_not_written_near_evidence(tmp_path: Path, case: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (case / "disk.E01.custody").write_text("log")
    assert "--out" in refused(asked(tmp_path, target, "--out", case / "results"))
    assert "--out" in refused(asked(tmp_path, target, "--out", case))


def test_an_incomplete_search_is_a_warning(tmp_path: Path, case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        (case / f"file{number}").touch()
    monkeypatch.setattr(safety, "NAMES_MAX", 10)
    (said,) = safety.check(asked(tmp_path, case))
    assert "only the first 10 names" in said


def test_nothing_is_written_and_the_exit_code_is_3(tmp_path: Path, case: Path) -> None:
    (case / "disk.E01.custody").write_text("log")
    before = case.stat().st_mtime_ns
    argv = [sys.executable, "-m", "cheetah.bench", "storage", str(case), "--out", str(tmp_path / "out"), "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 3, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["exit_code"] == 3 and "disk.E01.custody" in answer["error"]
    assert list(names(case)) == ["disk.E01.custody"] and case.stat().st_mtime_ns == before
    assert not (tmp_path / "out").exists()


@contextmanager
def mounted(file: Path, size: int, own_tmp: Path) -> Iterator[Path]:
    """Mounts a new file system in a file elsewhere."""
    if size:
        with file.open("wb") as made:
            made.truncate(size)
    with work.WorkDirectory(own_tmp, own_tmp) as taken_down:
        yield filesystem.on(taken_down, file, "ext4").directory


def test_evidence_behind_a_loop_device_is_found(tmp_path: Path, case: Path, own_tmp: Path) -> None:
    as_root()
    with mounted(case / "disk.raw", 16 * MIB, own_tmp) as directory:
        assert safety.check(asked(tmp_path, directory)) == []
        log = case / "disk.raw.custody"
        log.write_text("log")
        said = refused(asked(tmp_path, directory))
        assert str(log) in said and str(case / "disk.raw") in said
        deeper = directory / "deeper"
        deeper.mkdir()
        assert str(log) in refused(asked(tmp_path, deeper))
        # One more file system, in a file on that one.
        inner = own_tmp / "inner"
        inner.mkdir()
        with mounted(directory / "inner.raw", 8 * MIB, inner) as twice:
            assert str(log) in refused(asked(tmp_path, twice))
        bound = own_tmp / "bound"
        bound.mkdir()
        run("mount", "--bind", deeper, bound)
        try:
            assert str(log) in refused(asked(tmp_path, bound))
        finally:
            run("umount", bound)


@pytest.fixture(name="bind")
def _bind() -> Iterator[Callable[[Path, Path], None]]:
    """Binds a directory to another path."""
    as_root()
    bound: list[Path] = []

    def bind(source: Path, point: Path) -> None:
        point.mkdir(parents=True)
        run("mount", "--bind", source, point)
        bound.append(point)

    yield bind
    for point in reversed(bound):
        run("umount", point)


def test_a_log_above_the_source_of_a_bind_mount_is_found(
    tmp_path: Path, case: Path, bind: Callable[[Path, Path], None]
) -> None:
    (case / "scratch/deeper").mkdir(parents=True)
    bind(case / "scratch", tmp_path / "bound")
    assert safety.check(asked(tmp_path, tmp_path / "bound")) == []
    log = case / "disk.E01.custody"
    log.write_text("log")
    for target in (tmp_path / "bound", tmp_path / "bound/deeper"):
        assert str(log) in refused(asked(tmp_path, target))


def test_a_log_above_a_bind_mount_is_found(tmp_path: Path, case: Path, bind: Callable[[Path, Path], None]) -> None:
    (tmp_path / "fast/deeper").mkdir(parents=True)
    bind(tmp_path / "fast", case / "scratch")
    assert safety.check(asked(tmp_path, case / "scratch")) == []
    log = case / "disk.E01.custody"
    log.write_text("log")
    for target in (case / "scratch", case / "scratch/deeper"):
        assert str(log) in refused(asked(tmp_path, target))


def test_a_partition_of_an_array_of_loop_devices_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake /sys; few test machines can make such arrays."""
    block, devices = tmp_path / "class", tmp_path / "devices"
    for place in ("loop3/loop3p1", "loop4", "md0/slaves", "md0/md0p2", "nbd5"):
        (devices / place).mkdir(parents=True)
        parent, _, child = place.partition("/")
        for name in filter(lambda name: name and name != "slaves", (parent, child)):
            block.mkdir(exist_ok=True)
            if not (block / name).exists():
                (block / name).symlink_to(devices / (parent if name == parent else place))
    for part in ("loop3/loop3p1", "md0/md0p2"):
        (devices / part / "partition").write_text("1")
    (devices / "md0/slaves/loop3p1").symlink_to(devices / "loop3/loop3p1")
    (devices / "md0/slaves/loop4").symlink_to(devices / "loop4")
    monkeypatch.setattr(safety, "BLOCK", block)
    monkeypatch.setattr(mounts, "loops", lambda: {"loop3": "/evidence/a.raw", "loop4": "/evidence/b.raw"})
    assert safety._of_device("md0p2") == [Path("/evidence/a.raw"), Path("/evidence/b.raw")]
    # An attached drive: its process was started with the drive file.
    drive_file = tmp_path / "case42.drive"
    drive_file.touch()
    with subprocess.Popen(["cat", "-", drive_file.name], stdin=subprocess.PIPE, cwd=tmp_path) as attached:
        (devices / "nbd5" / "pid").write_text(f"{attached.pid}\n")
        assert soon(lambda: safety._of_device("nbd5") == [drive_file])


def test_evidence_behind_a_mounted_drive_is_found(
    tmp_path: Path, case: Path, own_tmp: Path, drive: Callable[[Path, Path], Path], binary: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    with_fuse()
    monkeypatch.setenv("CHEETAH", binary)
    monkeypatch.setenv("CHEETAH_KEY", str(tmp_path / "custody.key"))
    picture = tmp_path / "picture.raw"
    with picture.open("wb") as file:
        file.truncate(16 * MIB)
    made = drive(case / "case42.drive", picture)
    assert (case / "case42.drive.custody").exists(), "an image that comes into a drive has a log"
    with work.WorkDirectory(own_tmp, own_tmp) as taken_down:
        _, shown = verbs.mount(taken_down, str(made), writable=True)
        with mounted(Path(shown), 0, own_tmp) as directory:
            assert safety.behind(mounts.of(directory))[-1] == made  # type: ignore[arg-type]
            assert str(made) + ".custody" in refused(asked(tmp_path, directory))
            # Without its log it is a drive like any other.
            shutil.move(f"{made}.custody", tmp_path / "aside")
            assert safety.check(asked(tmp_path, directory)) == []


def test_a_command_near_evidence_writes_nothing(case: Path) -> None:
    (case / "disk.E01.custody").write_text("log")
    argv = [sys.executable, "-m", "cheetah.bench", "storage", ".", "--quick"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=case)
    assert done.returncode == 3 and "disk.E01.custody" in done.stderr
    assert list(names(case)) == ["disk.E01.custody"]


def test_a_run_near_evidence_does_not_begin(tmp_path: Path, case: Path) -> None:
    (case / "disk.E01.custody").write_text("log")
    with pytest.raises(Refused):
        prepare(asked(tmp_path, case), lambda said: None)
    assert not (tmp_path / "out").exists()


def test_drives_are_not_mounted_near_evidence(tmp_path: Path, case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (case / "disk.E01.custody").write_text("log")
    monkeypatch.setattr("tempfile.tempdir", str(case))
    assert "TMPDIR" in refused(asked(tmp_path, "ram:linear@node1"))
    (tmp_path / "target").mkdir()
    assert safety.check(asked(tmp_path, tmp_path / "target")) == []


def test_a_link_does_not_hide_a_log(tmp_path: Path, case: Path) -> None:
    """Neither a link to a directory for results inside a case, nor one to the mounted image."""
    target, scratch = tmp_path / "target", case / "scratch"
    target.mkdir()
    scratch.mkdir()
    image, link = case / "disk.raw", tmp_path / "link.raw"
    image.touch()
    link.symlink_to(image)
    (tmp_path / "out").symlink_to(scratch)
    log = case / "disk.raw.custody"
    log.write_text("log")
    assert str(log) in refused(asked(tmp_path, target, "--out", tmp_path / "out"))
    assert safety._beside(link) == [log]
