"""What `cheetah run` does at a worker and with its results, where no source is really mounted."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import PATIENCE_S

from cheetah import durable
from cheetah.run import at_worker
from cheetah.run.at_worker import Job, Left, Mount, Place
from cheetah.run.hub import Hub, Misuse, Outcome
from cheetah.run.parts import ALIGNMENT_BYTES, Part
from cheetah.run.source import Source, is_same
from cheetah.run.workers import Here

SIZE_BYTES = 3 * ALIGNMENT_BYTES
# What the program shows that the tests have in place of a mount.
SOURCE = Source.of("/cases/disk.raw", SIZE_BYTES, lambda _, length: bytes(length))
# Makes a file in place of a mount, and says that it is ready, behind the lines that are printed before.
MOUNT = """#!/bin/sh
truncate -s {size} "$4/disk.raw"
{before}
echo '{{"event": "ready", "file": "disk.raw"}}'
exec sleep 1000
"""


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Has sources mounted by a program that makes a file, and prints something before."""
    if not shutil.which("setpriv"):
        pytest.skip("needs setpriv")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(at_worker, "READY_S", PATIENCE_S)
    program = tmp_path / "mounting"

    def printing(before: str) -> None:
        program.write_text(MOUNT.format(size=SIZE_BYTES, before=before))
        program.chmod(0o755)
        monkeypatch.setenv("CHEETAH_BINARY", str(program))

    printing("")
    return printing


def job(*command: str) -> Job:
    """A run of a program."""
    return Job("0" * 16, SOURCE, command)


def hub(out: Path, *command: str, parts: int = 1, usual: int = 1, source: Source = SOURCE) -> Hub:
    """A run of a program on a source that the test's program mounts."""
    return Hub(source, command, str(out), parts, usual)


def ignored(_outcome: Outcome) -> None:
    """Tells nobody."""


def test_a_mount_appends_to_its_log_after_the_offset_that_it_writes_with_was_moved(
    mounts: Callable[[str], None], tmp_path: Path
) -> None:
    # As a reader does that shares the offset.
    mounts(f"echo first; {shlex.quote(sys.executable)} -c 'import os; os.lseek(1, 0, 0)'; echo second")
    folder = tmp_path / "run"
    folder.mkdir()
    Mount(job(), str(folder)).end()
    assert (folder / "mount.log").read_text().splitlines()[:-1] == ["first", "second"]


@pytest.mark.usefixtures("mounts")
def test_a_run_that_ends_while_its_programs_do_unmounts_and_removes_its_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = Place(job())
    threads: dict[int, threading.Thread] = {}
    all_run = threading.Barrier(5)

    def program() -> None:
        with place.busy(), place.started(["sleep", "1000"]) as process:
            threads[process.pid] = threading.current_thread()
            all_run.wait(PATIENCE_S)
            process.wait()

    running = [threading.Thread(target=program) for _ in range(4)]
    for thread in running:
        thread.start()
    all_run.wait(PATIENCE_S)
    kill = os.killpg

    def slow(group: int, number: int) -> None:
        # Time for the thread to notice, which changes the set of programs as soon as it may.
        kill(group, number)
        threads[group].join(0.2)

    monkeypatch.setattr(os, "killpg", slow)
    place.end()
    for thread in running:
        thread.join(PATIENCE_S)
    assert not os.path.exists(place.folder)
    with pytest.raises(OSError, match=at_worker.ENDED), place.started(["true"]):
        pass


@pytest.mark.usefixtures("mounts")
def test_links_to_the_outside_and_pipes_are_left_out_named_and_the_part_is_done(tmp_path: Path) -> None:
    leaves = 'ln -s "$0" image; mkfifo pipe; ln -s ../../../x up; ln -s kept beside; echo x >kept; ln kept again'
    out = tmp_path / "out"
    outcomes = hub(out, "sh", "-c", leaves, "{image}").go(Here(1), ignored)
    assert [(outcome.is_done, outcome.problem, outcome.left_out) for outcome in outcomes] == [(True, "", 3)]
    part = out / "part-0001"
    assert sorted((part / "left_out.txt").read_text().splitlines()) == ["out/image", "out/pipe", "out/up"]
    assert sorted(os.listdir(part / "out")) == ["again", "beside", "kept"]
    assert (part / "out/beside").read_text() == (part / "out/again").read_text() == "x\n"
    assert json.loads((out / "run.json").read_bytes())["outcomes"][0]["left_out"] == 3


class Made:
    """Workers that are none: the archive of each part is made by the test, in turn."""

    count = 1
    placement = None

    def __init__(self, folder: Path, *archives: Callable[[Path], None]) -> None:
        self._folder, self._archives = folder, list(archives)

    def perform(self, _job: Job, parts: list[Part]) -> Iterator[tuple[Part, Left | str]]:
        """Makes the next archive for each part."""
        for part in parts:
            archive = self._folder / "made.tar"
            self._archives.pop(0)(archive)
            yield part, Left("lab1", 0, 1.0, "", str(archive), archive.stat().st_size)

    def fetch(self, left: Left) -> Iterator[bytes]:
        """Reads it."""
        yield Path(left.archive).read_bytes()

    def end(self, job: Job) -> None:
        """Nothing is left."""


def good(archive: Path) -> None:
    """Makes an archive of a program that left two files."""
    left = archive.parent / "left"
    (left / "out/deep").mkdir(parents=True, exist_ok=True)
    for name in ("stdout", "out/deep/found"):
        (left / name).write_text(name)
    with tarfile.open(archive, "w") as file:
        file.add(left, arcname=".")


def damaged(archive: Path) -> None:
    """Makes one that ends within a file."""
    good(archive)
    os.truncate(archive, archive.stat().st_size // 4)


def noise(archive: Path) -> None:
    """Makes one that is none."""
    archive.write_bytes(b"\xa5" * 10240)


def test_results_that_arrive_damaged_are_fetched_again_and_fail_the_part_in_the_end(tmp_path: Path) -> None:
    again = hub(tmp_path / "again", "true").go(Made(tmp_path, noise, good), ignored)
    assert [outcome.is_done for outcome in again] == [True]
    assert (tmp_path / "again/part-0001/out/deep/found").read_text() == "out/deep/found"
    never = hub(tmp_path / "never", "true").go(Made(tmp_path, damaged, noise, damaged), ignored)
    assert [(outcome.is_done, outcome.exit_code) for outcome in never] == [(False, None)]
    assert "its results from lab1 are damaged" in never[0].problem
    assert os.listdir(tmp_path / "never") == ["run.json"]


def test_results_are_stored_before_the_record_says_that_their_part_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    stored: set[int] = set()
    missing: list[str] = []
    fsync, replace = os.fsync, durable.replace

    def noted(opened: int) -> None:
        fsync(opened)
        stored.add(os.fstat(opened).st_ino)

    def compared(*arguments: Any) -> None:
        entries = [out, *out.rglob("*")]
        missing.extend(str(entry) for entry in entries if entry.stat().st_ino not in stored)
        assert (out / "part-0001/out/deep/found").exists()
        replace(*arguments)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(durable, "replace", compared)
    hub(out, "true").go(Made(tmp_path, good), ignored)
    assert missing == []


def test_a_run_in_other_parts_than_its_folder_has_is_refused_and_without_a_number_it_keeps_its_own(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    assert len(hub(out, "true", parts=0, usual=2).go(Made(tmp_path, good, good), ignored)) == 2
    with pytest.raises(Misuse, match=r"a run in 2 parts; .*--parts 2"):
        hub(out, "true", parts=3)
    for parts in (0, 2):
        assert len(hub(out, "true", parts=parts, usual=3).go(Made(tmp_path), ignored)) == 2


def test_samples_differ_where_a_source_does_and_those_that_cannot_be_read_do_not_count() -> None:
    content = os.urandom(SIZE_BYTES)

    def of(content: bytes, bad: int = -1) -> tuple[str | None, ...]:
        def pread(offset: int, length: int) -> bytes:
            if offset <= bad < offset + length:
                raise OSError("bad sector")
            return content[offset : offset + length]

        return Source.of("disk", len(content), pread).samples

    for at in (0, SIZE_BYTES - 1):
        other = bytearray(content)
        other[at] ^= 1
        assert not is_same(of(content), of(bytes(other)))
        assert is_same(of(content), of(bytes(other), at))
    assert is_same(of(content), of(content)) and not is_same(of(content), ())
    # What was not compared is not the same: of one that cannot be read, and of one of which less than half can.
    whole, nothing = of(content), (None,) * 64
    assert not is_same(nothing, nothing) and not is_same(whole, nothing) and not is_same(nothing, whole)
    assert is_same(whole, whole[:32] + nothing[32:]) and not is_same(whole, whole[:31] + nothing[31:])
    # Of a damaged source, what can be read is enough if both can read it.
    assert is_same(whole[:3] + nothing[3:], whole[:3] + nothing[3:])
    for size_bytes in (0, 1, 511, 4096, 4097):
        samples = of(content[:size_bytes])
        assert len(samples) == 64 and None not in samples


@pytest.mark.usefixtures("mounts")
def test_a_part_fails_at_a_worker_whose_source_has_the_same_name_and_size_and_another_content(tmp_path: Path) -> None:
    other = Source.of(SOURCE.name, SIZE_BYTES, lambda _, length: b"x" * length)
    outcomes = hub(tmp_path / "out", "true", source=other).go(Here(1), ignored)
    assert [(outcome.is_done, outcome.exit_code) for outcome in outcomes] == [(False, None)]
    assert "another content here" in outcomes[0].problem
    # And so does another disk under the name of the one that a run was begun with.
    done = tmp_path / "done"
    hub(done, "true").go(Here(1), ignored)
    with pytest.raises(Misuse, match="a source with another content"):
        hub(done, "true", source=other)


@pytest.mark.usefixtures("mounts")
def test_a_part_whose_mount_has_ended_fails_and_the_next_one_has_a_mount_of_its_own(tmp_path: Path) -> None:
    # The process that started it waits for it later.
    kill = 'test "$1" = 2 || exit 0; pid=$(cat "$0/pid"); kill -9 $pid; until grep -q "^State:.Z" /proc/$pid/status; do sleep 0.05; done'
    folder = tmp_path / "pids"
    folder.mkdir()
    (tmp_path / "mounting").write_text(MOUNT.format(size=SIZE_BYTES, before=f'echo $$ >"{folder}/pid"'))
    outcomes = hub(tmp_path / "out", "sh", "-c", kill, str(folder), "{number}", parts=3).go(Here(1), ignored)
    assert [outcome.is_done for outcome in outcomes] == [True, False, True]
    assert outcomes[1].problem == "the mount of the source ended before sh did"


def test_two_runs_do_not_write_into_one_folder_and_the_second_may_once_the_first_has_ended(tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = hub(out, "true")
    with pytest.raises(Misuse, match="another run writes to"):
        hub(out, "true")
    first.go(Made(tmp_path, good), ignored)
    assert [outcome.is_done for outcome in hub(out, "true").go(Made(tmp_path), ignored)] == [True]


def test_what_is_in_doubt_of_the_source_is_in_the_record(tmp_path: Path) -> None:
    out = tmp_path / "out"
    Hub(SOURCE, ("true",), str(out), 1, doubts=["the image lacks a range"]).go(Made(tmp_path, good), ignored)
    assert json.loads((out / "run.json").read_bytes())["doubts"] == ["the image lacks a range"]


def test_a_run_that_goes_on_keeps_the_doubts_under_which_its_parts_were_done(tmp_path: Path) -> None:
    out = tmp_path / "out"

    def again(*doubts: str) -> Hub:
        return Hub(SOURCE, ("true",), str(out), 2, doubts=doubts)

    # The second part has no archive: the run ends there.
    with pytest.raises(IndexError):
        again("the image lacks a range").go(Made(tmp_path, good), ignored)
    later = again()
    assert later.doubts == ["the image lacks a range"]
    outcomes = later.go(Made(tmp_path, good), ignored)
    assert [outcome.doubts for outcome in outcomes] == [("the image lacks a range",), ()]
    record = json.loads((out / "run.json").read_bytes())
    assert record["doubts"] == ["the image lacks a range"]
    assert [one["doubts"] for one in record["outcomes"]] == [["the image lacks a range"], []]
    # A record that has them for the run alone.
    for one in record["outcomes"]:
        del one["doubts"]
    (out / "run.json").write_text(json.dumps(record))
    assert [outcome.doubts for outcome in again().go(Made(tmp_path), ignored)] == [("the image lacks a range",)] * 2
