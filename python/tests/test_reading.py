"""Concurrent reads, unreadable ranges, and other processes."""

import errno
import os
import pickle
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import MIB, noise, python

import cheetah


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("reading") / "disk.raw"
    path.write_bytes(noise(5 * MIB + 1, 2))
    return path


@pytest.mark.parametrize("kind", ["raw", "drive", "nbd"])
def test_threads_read_the_right_bytes_at_once(
    kind: str, image: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    source: Path | str = image
    if kind == "drive":
        source = request.getfixturevalue("drive")(tmp_path / "case42.drive", image)
    elif kind == "nbd":
        source = request.getfixturevalue("nbdkit")("file", image)
    content = image.read_bytes()

    def read(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(60):
            start, length = chance.randrange(len(content) + 10), chance.choice((1, 512, 4096, 70_000, 700_000))
            assert device.pread(start, length) == content[start : start + length]

    with cheetah.open(source) as device, ThreadPoolExecutor(8) as pool:
        list(pool.map(read, range(8)))


def test_threads_with_a_shared_position_read_disjoint_parts(image: Path) -> None:
    content, pieces, lock = image.read_bytes(), [], threading.Lock()
    with cheetah.open(image) as device:

        def take() -> None:
            while piece := device.read(9973):
                with lock:
                    pieces.append(piece)

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(pieces) == sorted(content[start : start + 9973] for start in range(0, len(content), 9973))


def test_a_range_recorded_as_unreadable_is_an_error(tmp_path: Path) -> None:
    image = tmp_path / "part.raw"
    image.write_bytes(noise(MIB, 3))
    (tmp_path / "part.raw.map").write_text(
        "# Mapfile\n0x00000000     ?               1\n"
        "0x00000000  0x00040000  +\n0x00040000  0x00000200  -\n0x00040200  0x000BFE00  +\n"
    )
    with cheetah.open(image) as device:
        assert len(device.lost) == 1 and "512" in device.lost[0]
        with pytest.raises(OSError) as caught:
            device.pread(0x3F000, 8192)
        assert caught.value.errno == errno.EIO and "unreadable" in str(caught.value)
        device.seek(0x40000)
        for read in (lambda: device.read(1), lambda: device.readinto(bytearray(1)), device.read):
            with pytest.raises(OSError):
                read()
            assert device.tell() == 0x40000
        assert device.pread(0x40200, 512) == image.read_bytes()[0x40200:0x40400]


def test_a_failing_server_is_an_error_until_it_recovers(
    tmp_path: Path, image: Path, nbdkit: Callable[..., str]
) -> None:
    failing = tmp_path / "failing"
    uri = nbdkit(
        "--filter=error", "file", image, "error-pread=EIO", "error-pread-rate=100%", f"error-pread-file={failing}"
    )
    with cheetah.open(uri) as device:
        failing.touch()
        with pytest.raises(OSError) as caught:
            device.pread(4096, 512)
        assert caught.value.errno == errno.EIO and caught.value.strerror
        failing.unlink()
        assert device.pread(4096, 512) == image.read_bytes()[4096:4608]


def test_a_pickled_device_is_opened_again(image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(image.parent)
    with cheetah.open("disk.raw", timeout_s=3) as device:
        device.seek(100)
        packed = pickle.dumps(device)
    # From any working directory.
    monkeypatch.chdir(tmp_path)
    with pickle.loads(packed) as again:
        assert again.tell() == 0 and again.pread(100, 10) == image.read_bytes()[100:110]
    image.with_name("gone.raw").write_bytes(b"soon")
    with cheetah.open(image.with_name("gone.raw")) as gone:
        packed = pickle.dumps(gone)
    os.remove(image.with_name("gone.raw"))
    with pytest.raises(cheetah.Error):
        pickle.loads(packed)


def test_a_forked_process_gets_an_error_at_once(image: Path) -> None:
    code = """
import os, sys, cheetah
device = cheetah.open(sys.argv[1])
device.pread(0, 1)
for use in (lambda: device.pread(0, 1), lambda: cheetah.open(sys.argv[1]), device.close):
    sys.stdout.flush()
    if os.fork() == 0:
        try:
            use()
        except cheetah.Error as error:
            print("refused:", error)
        else:
            print("closed")
        sys.exit(0)
    assert os.wait()[1] == 0
print(len(device.pread(0, 5)))
"""
    said = python(code, str(image)).splitlines()
    assert ["spawn" in line for line in said] == [True, True, False, False], said
    assert said[2:] == ["closed", "5"]


def test_the_first_to_open_may_be_a_forked_process(image: Path) -> None:
    code = """
import os, sys, cheetah
if os.fork() == 0:
    print(len(cheetah.open(sys.argv[1]).pread(0, 7)))
    sys.exit(0)
assert os.wait()[1] == 0
"""
    assert python(code, str(image)) == "7\n"


def test_ctrl_c_ends_a_waiting_read(image: Path, nbdkit: Callable[..., str]) -> None:
    uri = nbdkit("--filter=delay", "file", image, "rdelay=100")
    code = """
import signal, sys, threading, time, os, cheetah
device = cheetah.open(sys.argv[1], timeout_s=200)
began = time.monotonic()
try:
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    device.pread(0, 512)
except KeyboardInterrupt:
    print(time.monotonic() - began < 60, flush=True)
# Without waiting for the read.
os._exit(0)
"""
    assert python(code, uri) == "True\n"
