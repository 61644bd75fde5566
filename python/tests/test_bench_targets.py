"""Targets are made ready, used and taken down without leftovers; failures are one sentence."""

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from bench_targets import _own_tmp, as_root, left, names, nothing_left, soon, with_fuse  # noqa: F401
from conftest import MIB, PATIENCE_S, program, run

from cheetah.bench.failure import BenchError
from cheetah.bench.storage.run import image, prepare
from cheetah.bench.storage.settings import DrivePlan, Scope, Settings, TargetSpec
from cheetah.bench.storage.targets import disk_model, filesystem, leftover, work
from cheetah.bench.storage.targets.directory import DirectoryTarget, SpaceReservations
from cheetah.bench.storage.targets.ram_drive import DriveTarget
from cheetah.bench.storage.targets.target import Missing, Target
from cheetah.bench.system import mounts, owner, programs

NEED = 16 * MIB


@pytest.fixture(autouse=True)
def _program(own_tmp: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """The command line under test."""
    if "drive" in request.node.name:
        with_fuse()
        monkeypatch.setenv("CHEETAH", request.getfixturevalue("binary"))


def directory(
    path: Path, fs: str | None = None, readahead_bytes: int | None = None, room: SpaceReservations | None = None
) -> Target:
    return DirectoryTarget("disk", path, path / "out", MIB, room or SpaceReservations(), fs, readahead_bytes)


def drive(out: Path, nodes: int = 2, fs: str = "ext4", layout: str = "stripe") -> Target:
    return DriveTarget("drive", DrivePlan(layout, 64 << 10, (), nodes), fs, out, MIB, 256 << 10)


@pytest.fixture(name="disk")
def _disk(tmp_path: Path) -> Path:
    """A directory to measure in, with another file."""
    path = tmp_path / "disk"
    path.mkdir()
    (path / "theirs").write_text("theirs")
    return path


def test_a_private_directory_is_made_and_removed(disk: Path) -> None:
    with directory(disk).enter(NEED) as ready:
        assert ready.directory.is_relative_to(disk) and ready.directory != disk
        assert not list(ready.directory.iterdir())
        assert ready.directory.parent.stat().st_mode & 0o777 == 0o700
        assert ready.about["file system"] == mounts.of(disk).fs  # type: ignore[union-attr]
        assert ready.device is None or Path(f"/sys/dev/block/{ready.device}/stat").exists()
        (ready.directory / "deep" / "er").mkdir(parents=True)
        (ready.directory / "deep" / "er" / "file").write_bytes(bytes(MIB))
    assert list(names(disk)) == ["theirs"]


def test_the_target_of_a_link_is_not_removed(disk: Path) -> None:
    with directory(disk).enter(NEED) as ready:
        (ready.directory / "file").symlink_to(disk / "theirs")
        (ready.directory / "folder").symlink_to(disk)
    assert (disk / "theirs").read_text() == "theirs"
    assert list(names(disk)) == ["theirs"]


def test_a_directory_that_another_user_could_replace_is_refused(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to give a directory away")
    theirs = disk / "another"
    (theirs / "deeper").mkdir(parents=True)
    os.chown(theirs, 65534, 65534)
    for directory in (theirs, theirs / "deeper"):
        with pytest.raises(BenchError, match="belongs to the user nobody"), work.WorkDirectory(directory, disk):
            pass
    # A mount that only its owner may enter is trusted, regardless of the uid that the server reports.
    on = mounts.of(theirs)
    assert on is not None
    for options, trusted in (("rw", True), ("rw,allow_other", False)):
        private = dataclasses.replace(on, fs="fuse.sshfs", options=options)
        monkeypatch.setattr(mounts, "of", lambda path, private=private: private)
        with contextlib.nullcontext() if trusted else pytest.raises(BenchError, match="belongs to"):
            owner.require_trusted(theirs)
    monkeypatch.undo()
    os.chown(theirs, 0, 0)
    theirs.chmod(0o777)
    with pytest.raises(BenchError, match="chmod \\+t"), work.WorkDirectory(theirs, disk):
        pass
    assert list(names(theirs)) == ["deeper"]
    theirs.chmod(0o1777)
    with work.WorkDirectory(theirs, disk) as made:
        assert made.directory.is_dir()


def test_targets_on_one_disk_are_noticed(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for target in (one, other):
        target.mkdir()
    specs = tuple(TargetSpec(path.name, path) for path in (one, other))
    settings = Settings(targets=specs, baseline="one", out=tmp_path / "out")
    (warning,) = prepare.shared_disks(settings)
    assert str(one) in warning and str(other) in warning and "on one disk" in warning
    assert prepare.shared_disks(dataclasses.replace(settings, targets=specs[:1])) == []
    # The same directory with several file systems is meant.
    twice = (specs[0], dataclasses.replace(specs[0], name="ext4", fs="ext4"))
    assert prepare.shared_disks(dataclasses.replace(settings, targets=twice)) == []


def test_the_directory_is_removed_after_a_failure(disk: Path) -> None:
    with pytest.raises(ZeroDivisionError), directory(disk).enter(NEED) as ready:
        (ready.directory / "file").write_bytes(b"1")
        raise ZeroDivisionError
    assert list(names(disk)) == ["theirs"]


def test_too_little_space_is_refused_before_a_byte_is_written(disk: Path) -> None:
    before = disk.stat().st_mtime_ns
    with pytest.raises(BenchError, match=r"MiB free, and .* are needed"), directory(disk).enter(1 << 60):
        pass
    assert disk.stat().st_mtime_ns == before


def test_simultaneous_targets_need_space_together(disk: Path) -> None:
    status = os.statvfs(disk)
    most = int(status.f_bavail * status.f_frsize * 0.6)
    room = SpaceReservations()
    with directory(disk, room=room).enter(most):
        with pytest.raises(BenchError, match="for other targets there"), directory(disk, room=room).enter(most):
            pass
    with directory(disk, room=room).enter(most):
        pass


def test_an_unwritable_directory_is_one_sentence(disk: Path) -> None:
    as_root()
    run("mount", "-t", "tmpfs", "-o", "ro,size=1M", "none", disk)
    try:
        with pytest.raises(BenchError, match="read-only"), directory(disk).enter(NEED):
            pass
    finally:
        run("umount", disk)
    with pytest.raises(BenchError, match="not a directory"), directory(disk / "gone").enter(NEED):
        pass


def made_or_skip(fs: str) -> None:
    as_root()
    try:
        filesystem.check(fs, MIB)
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("fs", ["ext4", "ext3", "ext2", "ntfs", "vfat", "xfs", "btrfs"])
def test_a_file_system_is_made_in_a_directory(disk: Path, fs: str) -> None:
    made_or_skip(fs)
    status = os.statvfs(disk)
    if status.f_bavail * status.f_frsize < 2048 * MIB:
        pytest.skip("needs 2 GiB free")
    with directory(disk, fs, 512 << 10).enter(NEED) as ready:
        assert ready.about["file system"] == fs and ready.about["read-ahead"] == "512 KiB"
        assert ready.device and Path(f"/sys/dev/block/{ready.device}").resolve().name.startswith("loop")
        assert all(path.is_relative_to(disk) for path in (ready.directory, *ready.pages_of))
        (ready.directory / "file").write_bytes(bytes(NEED))
    assert list(names(disk)) == ["theirs"]
    assert not left(disk)


def test_a_failing_file_system_is_one_sentence(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystem, "program", lambda name: None)
    with (
        pytest.raises(Missing, match=r"xfs needs mkfs.xfs, which is not installed"),
        directory(disk, "xfs").enter(NEED),
    ):
        pass
    monkeypatch.setattr(filesystem, "program", lambda name: f"/sbin/{name}")
    monkeypatch.setattr(filesystem, "_known", lambda fs: True)
    with pytest.raises(BenchError, match="cannot hold a file of 4 GiB or more"):
        filesystem.check("vfat", 4 << 30)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(BenchError, match="needs root"), directory(disk, "ext4").enter(NEED):
        pass
    assert list(names(disk)) == ["theirs"]


@pytest.mark.parametrize("layout", ["stripe", "linear", "mirror"])
def test_a_drive_is_created_used_and_destroyed(own_tmp: Path, layout: str) -> None:
    with drive(own_tmp / "out", layout=layout).enter(NEED) as ready:
        content = os.urandom(8 * MIB)
        (ready.directory / "file").write_bytes(content)
        os.sync()
        assert (ready.directory / "file").read_bytes() == content
        assert f"{layout} " in ready.about["drive"] and "over 2 nodes" in ready.about["drive"]
        assert ready.about["unit"] == ("none" if layout == "linear" else "64KiB")
        assert ready.about["read-ahead"] == "256 KiB"
        assert ready.about["nodes"].count("127.0.0.1:") == 2
        (drive_file,) = ready.pages_of
        assert drive_file.stat().st_size >= NEED
        assert [one.partition(" ")[0] for one in left(own_tmp)].count("process") == 3, "two nodes and a mount"
        status = Path(f"/sys/dev/block/{ready.device}/stat").read_text().split()
        assert int(status[6]) * 512 >= len(content), "the device's counters include the bytes written"
    assert nothing_left(own_tmp)
    assert not list(own_tmp.iterdir())


def test_a_drive_over_given_servers_is_created_used_and_removed(own_tmp: Path, tmp_path: Path) -> None:
    with ExitStack() as stack:
        plan = DrivePlan("parity", 64 << 10, tuple(stack.enter_context(nbd_server(tmp_path, n)) for n in range(3)))
        target = DriveTarget("drive", plan, "ext4", own_tmp / "out", MIB)
        ready = stack.enter_context(target.enter(NEED))
        (ready.directory / "file").write_bytes(bytes(MIB))
        assert "parity " in ready.about["drive"] and "started" not in ready.about["nodes"]
    assert nothing_left(own_tmp) and not list(own_tmp.iterdir())


@contextlib.contextmanager
def nbd_server(folder: Path, number: int) -> Iterator[str]:
    """Serves memory over NBD; yields the URI."""
    if shutil.which("nbdkit") is None:
        pytest.skip("needs nbdkit")
    socket = folder / f"server-{number}"
    server = subprocess.Popen(["nbdkit", "--foreground", "--unix", str(socket), "memory", "256M"])
    try:
        assert soon(socket.exists)
        yield f"nbd+unix:///?socket={socket}"
    finally:
        server.kill()
        server.wait(PATIENCE_S)


def test_a_model_without_its_program_is_one_sentence(own_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_root()
    monkeypatch.setattr(disk_model, "program", lambda: None)
    target = disk_model.DiskModelTarget("old", "ide", "ext4", own_tmp / "out", MIB)
    with pytest.raises(Missing, match=r"need lab-disk .*LAB_DISK"), target.enter(NEED):
        pass


def test_a_quick_run_works_on_a_small_image_whatever_was_named(tmp_path: Path) -> None:
    given = tmp_path / "case.raw"
    with given.open("wb") as file:
        file.truncate(100 << 30)
    said: list[str] = []
    settings = Settings((), "", tmp_path, image=given, extent=Scope.QUICK)
    assert image.get(settings, said.append).stat().st_size == 64 * MIB
    assert "too much for --quick" in said[0]
    assert image.get(dataclasses.replace(settings, extent=Scope.NORMAL), said.append) == given


def test_a_drive_is_destroyed_after_a_failure(own_tmp: Path) -> None:
    with pytest.raises(ZeroDivisionError), drive(own_tmp / "out", 1).enter(NEED):
        raise ZeroDivisionError
    assert nothing_left(own_tmp) and not list(own_tmp.iterdir())


def test_a_drive_with_a_dead_mount_is_destroyed(own_tmp: Path) -> None:
    with ExitStack() as stack:
        ready = stack.enter_context(drive(own_tmp / "out", 1).enter(NEED))
        (dead,) = (one for one in left(own_tmp) if one.startswith("process") and "x00mount" in one)
        os.kill(int(dead.split()[1].rstrip(":")), signal.SIGKILL)
        assert soon(lambda: not _answers(ready.pages_of[0]))
    assert nothing_left(own_tmp) and not list(own_tmp.iterdir())


def _answers(path: Path) -> bool:
    try:
        path.stat()
    except OSError:
        return False
    return True


def test_a_drive_that_cannot_be_created_is_one_sentence(own_tmp: Path, nodes: str) -> None:
    with pytest.raises(BenchError, match="GiB of memory, and"), drive(own_tmp, 3).enter(1 << 50):
        pass
    nowhere = DriveTarget("nowhere", DrivePlan("stripe", 64 << 10, ("127.0.0.1:1",)), "ext4", own_tmp, MIB)
    with pytest.raises(BenchError, match=r"^cheetah create: .*cannot connect"), nowhere.enter(NEED):
        pass
    small = DriveTarget("small", DrivePlan("stripe", 64 << 10, tuple(nodes.split(","))), "ext4", own_tmp, MIB)
    with pytest.raises(BenchError, match=r"^cheetah create: not enough memory"), small.enter(512 * MIB):
        pass
    assert nothing_left(own_tmp) and not list(own_tmp.iterdir())


ENTER = """
import sys
from pathlib import Path
from cheetah.bench.storage.targets.ram_drive import DriveTarget
from cheetah.bench.storage.settings import DrivePlan
print("entering", flush=True)
with DriveTarget("drive", DrivePlan("stripe", 64 << 10, (), 2), "ext4", Path(sys.argv[1]), 1 << 20).enter(16 << 20) as ready:
    print(ready.directory, flush=True)
    sys.stdin.read()
"""


def entering(out: Path) -> "subprocess.Popen[str]":
    argv = [sys.executable, "-c", ENTER, str(out)]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout and process.stdout.readline() == "entering\n"
    return process


@pytest.mark.parametrize("after_s", [0.02, 0.2, 0.6, None])
def test_a_drive_is_destroyed_on_ctrl_c(own_tmp: Path, after_s: float | None) -> None:
    process = entering(own_tmp / "out")
    if after_s is None:
        assert process.stdout and process.stdout.readline().startswith(str(own_tmp))
    else:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(after_s)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert "KeyboardInterrupt" in said and "warning" not in said
    assert nothing_left(own_tmp) and not list(own_tmp.iterdir())


def test_a_drive_of_a_killed_run_is_reported_and_removed(own_tmp: Path) -> None:
    process = entering(own_tmp / "out")
    assert process.stdout
    ready = Path(process.stdout.readline().strip())
    assert ready.is_dir()
    (said,) = leftover.others([work.parent(), own_tmp])
    assert str(own_tmp / "out") in said and f"process {process.pid}," in said
    assert leftover.cleared([own_tmp]) == []
    assert ready.is_dir(), "a directory in use stays"
    process.kill()
    process.wait(PATIENCE_S)
    assert soon(lambda: not any(one.startswith("process") for one in left(own_tmp))), "nodes end with their run"
    assert left(own_tmp), "the file system is still mounted"
    (said,) = leftover.cleared([own_tmp])
    assert said.endswith("was removed")
    assert nothing_left(own_tmp) and not list(own_tmp.iterdir())
    assert leftover.cleared([own_tmp]) == []


def test_only_marked_directories_are_removed(disk: Path, tmp_path: Path) -> None:
    ours = {"pid": 1, "started": "-1", "boot": owner.boot(), "host": os.uname().nodename, "out": "/out"}
    theirs = {**ours, "boot": "another", "host": "elsewhere"}
    for name, content in (("ours", ours), ("elsewhere", theirs), ("broken", None)):
        (disk / f"{work.PREFIX}{name}").mkdir()
        (disk / f"{work.PREFIX}{name}" / work.MARKER).write_text("{" if content is None else json.dumps(content))
    (disk / f"{work.PREFIX}unmarked").mkdir()
    aside = tmp_path / "aside"
    aside.mkdir()
    (aside / work.MARKER).write_text(json.dumps(ours))
    (disk / f"{work.PREFIX}link").symlink_to(aside)
    said = leftover.cleared([disk])
    assert [sentence.partition(",")[0] for sentence in said] == [
        str(disk / f"{work.PREFIX}elsewhere"),
        str(disk / f"{work.PREFIX}ours"),
    ]
    assert "made on elsewhere" in said[0] and said[1].endswith("was removed")
    assert sorted(path.name.removeprefix(work.PREFIX) for path in disk.iterdir()) == [
        "broken", "elsewhere", "link", "theirs", "unmarked"
    ]  # fmt: skip
    assert (aside / work.MARKER).exists()


def test_a_directory_with_a_mount_is_not_removed(disk: Path) -> None:
    as_root()
    kept = disk / "kept"
    kept.mkdir()
    (kept / "file").write_text("kept")
    with pytest.raises(BenchError, match=r"is still mounted: `umount"), directory(disk).enter(NEED) as ready:
        (ready.directory / "bound").mkdir()
        run("mount", "--bind", kept, ready.directory / "bound")
    assert (kept / "file").read_text() == "kept"
    run("umount", ready.directory / "bound")


def test_without_an_image_one_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program("mkfs.ext4")
    program("debugfs")
    monkeypatch.setitem(image.SIZES, Scope.QUICK, 32 * MIB)
    monkeypatch.setattr(programs, "ROOTS", ("/usr/bin",))
    settings = Settings((), "", tmp_path / "out", extent=Scope.QUICK)
    settings.out.mkdir()
    said: list[str] = []
    path = image.get(settings, said.append)
    assert path.stat().st_size == 32 * MIB and str(path) in said[0] and "no --image was named" in said[0]
    assert list(names(settings.out)) == [path.name], "nothing else stays"
    run(program("e2fsck"), "-f", "-n", path)
    files, deleted = run(program("fls"), "-r", path), run("fls", "-rd", path)
    assert files.count("r/r") > 20 and deleted.count("r/r") > 2
    before = path.stat().st_mtime_ns
    assert image.get(settings, said.append) == path and path.stat().st_mtime_ns == before
    path.unlink()
    assert run("fls", "-r", image.get(settings, said.append)) == files, "the same at every call"
    monkeypatch.setitem(image.SIZES, Scope.QUICK, 1 << 60)
    with pytest.raises(BenchError, match="MiB free"):
        image.get(settings, said.append)


def test_an_image_without_a_file_system_has_files_at_whole_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots, out = tmp_path / "roots", tmp_path / "out"
    roots.mkdir()
    out.mkdir()
    contents = [os.urandom(100_001 + 4096 * number) for number in range(12)]
    for number, content in enumerate(contents):
        (roots / f"{number}").write_bytes(content)
    monkeypatch.setitem(image.SIZES, Scope.QUICK, 8 * MIB)
    monkeypatch.setattr(programs, "MAKES_FILE_SYSTEM", False)
    monkeypatch.setattr(programs, "ROOTS", (str(roots),))
    path = image.get(Settings((), "", out, extent=Scope.QUICK), lambda _: None)
    raw = path.read_bytes()
    assert len(raw) == 8 * MIB and list(names(out)) == [path.name]
    places = [place for content in contents if (place := raw.find(content)) >= 0]
    assert len(places) == 8, "one file for each MiB"
    assert [place % 4096 for place in places] == [0] * 8


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_taking_down_is_not_interrupted(tmp_path: Path, number: int) -> None:
    """A signal that arrives meanwhile is handled afterwards."""
    heard: list[int] = []
    before = signal.signal(number, lambda *_: heard.append(number))
    status: list[list[int]] = []
    try:
        with work.WorkDirectory(tmp_path, tmp_path) as one:
            one.at_exit(lambda: status.append(list(heard)))
            one.at_exit(signal.raise_signal, number)
    finally:
        signal.signal(number, before)
    assert status == [[]] and heard == [number] and not one.directory.exists()


def test_loop_devices_of_others_are_not_detached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However similar their names are."""
    files = {"loop1": "/d/cheetah-bench-ab/x", "loop2": "/cheetah-bench-ab.raw", "loop3": "/d/cheetah-bench-abc/x"}
    monkeypatch.setattr(mounts, "loops", lambda: files)
    assert leftover._loops(tmp_path / "cheetah-bench-ab") == ["/dev/loop1", "/dev/loop2"]
    assert leftover._loops(tmp_path / "cheetah-bench-") == []
