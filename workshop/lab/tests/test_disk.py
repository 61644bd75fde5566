"""Models of disks from their user's view: a file that is a disk, and targets of `cheetah bench storage`."""

from __future__ import annotations

import os
import random
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cheetah.bench.storage.settings import DISK_MODELS, DrivePlan
from cheetah.bench.storage.targets import mounts
from cheetah.bench.storage.targets.disk_model import DiskModelTarget
from cheetah.bench.storage.targets.ram_drive import DriveTarget
from lab import disk

MIB = 1 << 20
SIZE = 64 * MIB
NEED = 16 * MIB


@pytest.fixture(autouse=True)
def _program(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Needs root and FUSE; afterwards nothing is mounted."""
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse") or not os.path.exists("/dev/loop-control"):
        pytest.skip("needs root, /dev/fuse and loop devices")
    monkeypatch.setenv("LAB_DISK", disk.build())
    # Its path is short: the path of a socket in it has at most 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="lab-test-"))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert not mounts.below(folder) and not list(folder.iterdir())
    folder.rmdir()
    assert not [file for file in mounts.loops().values() if "cheetah-bench" in file and str(folder) in file]


@pytest.mark.parametrize("model", disk.MODELS)
def test_every_quantity_of_a_data_sheet_is_met_in_virtual_time(model: str) -> None:
    done = subprocess.run([disk.build(), "check", model], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert set(disk.JOBS) < set(disk.allowed(model))


def test_the_models_are_those_that_the_benchmark_knows() -> None:
    printed = subprocess.run([disk.build(), "list"], capture_output=True, text=True, check=True).stdout
    names = [line.partition(":")[0] for line in printed.splitlines() if not line.startswith(" ")]
    assert tuple(names) == DISK_MODELS


@pytest.mark.parametrize("model", [disk.ZERO, "velociraptor"])
def test_a_mix_of_requests_reads_what_was_written(model: str) -> None:
    numbers = random.Random(1)
    expected = bytearray(SIZE)
    with disk.served(model, SIZE) as file:
        handle = os.open(file, os.O_RDWR)
        try:
            for number in range(150):
                start = numbers.randrange(SIZE - MIB)
                size = numbers.choice([512, 4096, 100_000])
                if number % 3:
                    content = numbers.randbytes(size)
                    assert os.pwrite(handle, content, start) == size
                    expected[start : start + size] = content
                else:
                    assert os.pread(handle, size, start) == expected[start : start + size]
            os.fsync(handle)
            assert os.pread(handle, SIZE, SIZE - 100) == expected[-100:]
            with pytest.raises(OSError, match="No space left"):
                os.pwrite(handle, b"x", SIZE)
        finally:
            os.close(handle)
        assert Path(file).read_bytes() == expected


def test_many_requests_at_once_reach_a_device_and_are_right() -> None:
    with disk.served("velociraptor", SIZE) as file, disk.as_device(file) as device:
        argv = ["fio", "--name=job", f"--filename={device}", "--direct=1", "--ioengine=libaio", "--iodepth=32"]
        argv += [
            "--rw=randwrite",
            "--bs=64k",
            f"--size={SIZE // 4}",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--verify_state_save=0",
        ]
        subprocess.run(argv, capture_output=True, check=True, timeout=300)


def test_a_disk_that_is_still_in_use_leaves_no_mount() -> None:
    with disk.served(disk.ZERO, SIZE) as file:
        held = os.open(file, os.O_RDONLY)
    try:
        assert not os.path.ismount(os.path.dirname(file))
    finally:
        os.close(held)


def test_an_unknown_model_and_a_size_beyond_the_disk_are_refused(tmp_path: Path) -> None:
    for words, said in ((["floppy"], "there are ide"), (["ide", "--size", str(1 << 40)], "has 60000000000 bytes")):
        argv = [disk.build(), words[0], str(tmp_path), *words[1:]]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 2 and said in done.stderr


def test_a_model_is_a_target_that_is_taken_down(tmp_path: Path) -> None:
    with DiskModelTarget("old", disk.ZERO, "ext4", tmp_path / "out", MIB).enter(NEED) as ready:
        content = os.urandom(8 * MIB)
        (ready.directory / "file").write_bytes(content)
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("3", encoding="ascii")
        assert (ready.directory / "file").read_bytes() == content
        assert ready.about["disk"].startswith("a model: ") and ready.about["loop device"] == "direct"


def test_a_drive_over_models_is_a_target_that_is_taken_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = os.environ.get("CHEETAH_STATIC") or os.environ.get("CHEETAH")
    if not program:
        pytest.skip("needs the command line ($CHEETAH_STATIC)")
    monkeypatch.setenv("CHEETAH", program)
    plan = DrivePlan("parity", 64 << 10, (), 3, disk.ZERO)
    with DriveTarget("array", plan, "ext4", tmp_path / "out", MIB).enter(NEED) as ready:
        (ready.directory / "file").write_bytes(os.urandom(MIB))
        assert ready.about["disks"].startswith("3 models: ") and "parity" in ready.about["drive"]


@pytest.mark.timing
def test_models_behind_a_loop_device_take_the_time_of_their_data_sheets() -> None:
    assert disk.check(disk.MODELS)
