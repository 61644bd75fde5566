"""Cold and warm caches, measured."""

import dataclasses
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench_fakes import COPY, Fake, directories, measured
from conftest import MIB

from cheetah.bench.storage.measurement import cache, pinned, tool
from cheetah.bench.storage.targets import mounts
from cheetah.bench.storage.targets.directory import DirectoryTarget, SpaceReservations


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of 16 MiB that can be evicted from the cache."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * (16 * MIB))
    cache.make_cold([path])
    if cache.resident_share([path]) == 1.0:
        pytest.skip(f"{tmp_path} is in memory for good")
    return path


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """A file that cannot be evicted from memory."""
    shm = Path("/dev/shm")
    if not shm.is_dir() or "tmpfs" not in subprocess.run(
        ["stat", "-f", "-c", "%T", shm], capture_output=True, text=True, check=False
    ).stdout:  # fmt: skip
        pytest.skip("needs a tmpfs at /dev/shm")
    path = shm / f"cheetah-test-{id(shm)}"
    path.write_bytes(b"x" * MIB)
    yield path
    path.unlink()


def test_on_fuse_each_written_file_is_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server behind FUSE does not receive `syncfs`."""
    files, programs, flushed = tmp_path / "files", tmp_path / "bin", tmp_path / "flushed"
    (files / "deep").mkdir(parents=True)
    programs.mkdir()
    (programs / "sync").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >>{flushed}\n')
    (programs / "sync").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    on = mounts.of(files)
    assert on is not None and cache.flush_words(files, tmp_path / "since") == cache.SYNC
    for name in ("old", "deep/old"):
        (files / name).write_text("flushed before")
        os.utime(files / name, (1e9, 1e9))
    monkeypatch.setattr(mounts, "of", lambda path: dataclasses.replace(on, fs="fuse.sshfs"))
    words = cache.flush_words(files, tmp_path / "since")
    for name in ("new", "deep/new one"):
        (files / name).write_text("written")
    assert tool.run(words, files).exit_code == 0
    lines = flushed.read_text().splitlines()
    assert lines[0] == "--" and sorted(lines[1:]) == ["./deep/new one", "./new"]


def test_a_target_that_is_memory_is_noted_once_and_each_warning_is_said_once(tmp_path: Path, in_memory: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="cheetah-test-", dir=in_memory.parent) as directory:
        shm = DirectoryTarget("shm", Path(directory), tmp_path, MIB, SpaceReservations())
        steps = [Fake("copy", COPY), Fake("again", COPY, ("copy",))]
        done = measured(tmp_path, [shm], steps, repetitions=2)
    assert done.outcomes() == {("copy", "shm"): ["done"] * 2, ("again", "shm"): ["done"] * 2}
    assert [one for one in done.part["warnings"] if "shm" in one] == [
        "shm is memory itself: its files are cached in cold steps, too"
    ]
    assert not any("not cold" in warning for one in done.part["samples"] for warning in one["warnings"])
    # On another target each sample has the warning, and the user sees it once.
    target, *_ = directories(tmp_path, "disk")
    again = measured(tmp_path / "disk", [dataclasses.replace(target, pages_of=(in_memory,))], steps, repetitions=2)
    said = [event.said for event in again.events if event.stage == "measured" and "not cold" in event.said]
    assert len({one["step"] for one in again.part["samples"] if "not cold" in str(one["warnings"])}) == len(said) == 2


def test_files_are_made_cold_and_warm(file: Path) -> None:
    cache.make_cold([file])
    cold = cache.resident_share([file])
    assert cold is not None and cold < 0.01
    cache.make_warm([file])
    warm = cache.resident_share([file])
    assert warm is not None and warm > 0.99


def test_without_root_files_are_dropped_one_by_one(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.make_warm([file])
    monkeypatch.setattr(cache, "_DROP", "/nonexistent/drop_caches")
    assert not cache.drops_all()
    cache.make_cold([file])
    cold = cache.resident_share([file])
    assert cold is not None and cold < 0.01


def test_a_partly_cached_file_has_a_partial_share(file: Path) -> None:
    cache.make_cold([file])
    with open(file, "rb") as source:
        source.read(4 * MIB)
    share = cache.resident_share([file])
    assert share is not None and 0.2 < share < 0.9
    # A directory stands for the files in it.
    (file.parent / "empty").touch()
    share = cache.resident_share([file.parent])
    assert share is not None and 0.2 < share < 0.9


def test_pages_mapped_by_a_process_stay_resident(file: Path) -> None:
    code = (
        "import mmap, sys; file = open(sys.argv[1], 'rb'); "
        "held = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE, prot=mmap.PROT_READ); "
        "print('held', flush=True); sys.stdin.read()"
    )
    argv = [sys.executable, "-c", code, str(file)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        cache.make_cold([file])
        assert cache.resident_share([file]) == 1.0


def test_sparse_empty_and_missing_files_have_shares(tmp_path: Path) -> None:
    sparse, empty = tmp_path / "sparse", tmp_path / "empty"
    with open(sparse, "wb") as file:
        file.truncate(1 << 34)
    empty.touch()
    assert cache.resident_share([sparse]) == 0.0
    assert cache.resident_share([empty]) is None
    assert cache.resident_share([]) is None
    cache.make_cold([sparse, empty])
    cache.make_warm([empty])


def test_another_users_file_has_no_share(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The kernel reports all of it as resident.
    monkeypatch.setattr(cache.os, "geteuid", lambda: 12345)
    monkeypatch.setattr(cache.os, "access", lambda *_: False)
    assert cache.resident_share([file]) is None


def test_a_cache_that_cannot_be_dropped_is_a_warning_in_the_sample(tmp_path: Path, in_memory: Path) -> None:
    (tmp_path / "source.raw").symlink_to(in_memory)
    run = measured(tmp_path, directories(tmp_path, "disk"), [Fake("copy", COPY)])
    sample = run.sample("copy", "disk")
    assert sample["outcome"] == "done"
    assert sample["resident_share_before"] == 1.0
    assert "not cold: 100% of source.raw was in memory" in sample["warnings"]


def test_a_pinned_program_stays_in_memory(file: Path) -> None:
    file.chmod(0o700)
    with pinned.pinned([str(file)]):
        cache.make_cold([file])
        assert cache.resident_share([file]) == 1.0
    cache.make_cold([file])
    assert cache.resident_share([file]) != 1.0
