"""Opening sources, and the properties of devices."""

import errno
import gzip
import hashlib
import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import MIB, noise

import cheetah


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """An image of odd size."""
    path = tmp_path / "disk.raw"
    path.write_bytes(noise(3 * MIB + 517, 1))
    return path


def md5(device: cheetah.Device) -> str:
    return hashlib.file_digest(device, "md5").hexdigest()


def test_a_raw_image_reads_as_its_file(image: Path) -> None:
    content = image.read_bytes()
    with cheetah.open(image) as device:
        assert (device.name, device.size, device.lost) == ("disk", len(content), [])
        assert device.read() == content
        assert device.read() == b""
        assert not device.closed
    assert device.closed


def test_an_e01_reads_as_the_imaged_disk(evidence: Callable[[str], Path]) -> None:
    with cheetah.open(evidence("ntfs_sample.E01")) as device:
        assert device.size == 7_340_032
        assert md5(device) == "e4e9578a9c8bf6c6b375a80c630196a4"


def test_a_qcow2_reads_as_its_disk(evidence: Callable[[str], Path]) -> None:
    with cheetah.open(evidence("windows_volume.qcow2")) as device:
        assert device.size == 35_913_728
        assert device.pread(3, 4) == b"NTFS"


def test_a_drive_reads_as_the_loaded_image(tmp_path: Path, image: Path, drive: Callable[[Path, Path], Path]) -> None:
    with cheetah.open(drive(tmp_path / "case42.drive", image)) as device:
        assert device.name == "case42"
        assert device.pread(0, device.size) == image.read_bytes()


def test_an_nbd_server_is_a_source(image: Path, nbdkit: Callable[..., str]) -> None:
    with cheetah.open(nbdkit("file", image)) as device:
        assert md5(device) == hashlib.md5(image.read_bytes()).hexdigest()


def test_a_device_is_a_file_object(image: Path) -> None:
    content = image.read_bytes()
    with cheetah.open(str(image)) as device:
        assert isinstance(device, io.RawIOBase)
        assert device.readable() and device.seekable() and not device.writable()
        assert device.seek(-5, os.SEEK_END) == len(content) - 5
        assert device.read(100) == content[-5:]
        assert device.seek(MIB) == device.tell() == MIB
        assert device.seek(3, os.SEEK_CUR) == MIB + 3
        buffer = bytearray(1000)
        assert device.readinto(buffer) == 1000 and buffer == content[MIB + 3 : MIB + 1003]
        assert device.tell() == MIB + 1003
        device.seek(0)
        buffered = io.BufferedReader(device, 4096)
        assert buffered.read(10_000) == content[:10_000] and buffered.peek(1)[:1] == content[10_000:10_001]
        assert gzip.decompress(gzip.compress(content)) == content


def test_reads_past_the_end_are_short(image: Path) -> None:
    with cheetah.open(image) as device:
        size = device.size
        assert device.pread(size - 3, 10) == image.read_bytes()[-3:]
        assert device.pread(size, 10) == device.pread(size + 10**18, 10) == device.pread(0, 0) == b""
        device.seek(size + 99)
        assert device.read(1) == b"" and device.readinto(bytearray(4)) == 0 and device.read() == b""


def test_a_source_that_cannot_be_opened_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "broken.E01").write_bytes(b"not an E01")
    for source, code in (("nothing/here.raw", 1), ("gopher://host/disk", 2), (tmp_path / "broken.E01", 3)):
        with pytest.raises(cheetah.Error) as caught:
            cheetah.open(source)
        assert caught.value.exit_code == code, caught.value
        assert str(source) in str(caught.value) and "\n" not in str(caught.value)
        assert isinstance(caught.value, OSError)


def test_a_missing_path_raises_file_not_found_error_with_errno(tmp_path: Path) -> None:
    missing = tmp_path / "missing.raw"
    for source in (missing, f"raw:{missing}", missing.with_suffix(".drive"), missing.with_suffix(".E01")):
        with pytest.raises(FileNotFoundError) as caught:
            cheetah.open(source)
        assert isinstance(caught.value, cheetah.Error)
        assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, str(source))
        assert str(missing.with_suffix("")) in str(caught.value) and "\n" not in str(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(again, FileNotFoundError) and (again.errno, again.exit_code) == (errno.ENOENT, 1)
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        cheetah.open(tmp_path / "file/disk.raw")


def test_misuse_is_refused(image: Path) -> None:
    with pytest.raises(TypeError):
        cheetah.open(17)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="timeout_s"):
        cheetah.open(image, timeout_s=0)
    with pytest.raises(ValueError, match="cache"):
        cheetah.open(image, cache=-1)
    with cheetah.open(image) as device:
        for offset, length in ((-1, 1), (0, -1)):
            with pytest.raises(ValueError, match="negative"):
                device.pread(offset, length)
        with pytest.raises(ValueError):
            device.seek(-1)
        with pytest.raises(ValueError):
            device.seek(0, 7)
        with pytest.raises(TypeError):
            device.readinto(b"not to be written to")
        with pytest.raises(io.UnsupportedOperation):
            device.write(b"evidence is only ever read")
    for after in (lambda: device.read(1), lambda: device.pread(0, 1), lambda: device.seek(0), device.tell):
        with pytest.raises(ValueError, match="closed"):
            after()
    device.close()


def test_reading_a_whole_disk_into_memory_is_refused(nbdkit: Callable[..., str]) -> None:
    with cheetah.open(nbdkit("null", "size=2T")) as device:
        assert device.size == 2 << 40
        with pytest.raises(ValueError, match="in pieces"):
            device.read()
        device.seek(-100, os.SEEK_END)
        assert device.read() == bytes(100)
