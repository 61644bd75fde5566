"""Volumes of BitLocker that the benchmarks make: each program that opens them shows the NTFS that is in them, byte by byte."""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
import triage_images
from bench_targets import with_fuse
from conftest import noise, program, run
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from test_unlock import triaged
from triage_workers import Alone

import cheetah
from bench.images import bitlocker
from cheetah.bench.failure import BenchError
from cheetah.triage.hub import run as hub


@pytest.fixture
def volume(tmp_path: Path, ntfs: Path) -> Path:
    """A volume that its recovery password and its startup key open."""
    path = tmp_path / "laptop.raw"
    bitlocker.make(str(ntfs), str(path), startup_key=True)
    return path


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A file with its recovery password."""
    path = tmp_path / "keys.txt"
    path.write_text(f"{bitlocker.RECOVERY_PASSWORD}\n")
    return path


@pytest.fixture
def startup_key(tmp_path: Path) -> Path:
    """Its key file."""
    path = tmp_path / "laptop.BEK"
    path.write_bytes(bitlocker.startup_key_file())
    return path


@pytest.fixture
def bdemounted(tmp_path: Path, volume: Path) -> Iterator[Path]:
    """What libbde shows of it."""
    with_fuse()
    folder, unmount = tmp_path / "bde", program("fusermount3")
    folder.mkdir()
    run(program("bdemount"), "-r", bitlocker.RECOVERY_PASSWORD, volume, folder)
    yield folder / "bde1"
    run(unmount, "-u", "-z", folder)


@pytest.mark.parametrize("first", [0, 1, (1 << 40) + 7])
def test_many_sectors_are_encrypted_as_one_by_one(first: int) -> None:
    content = noise(5 * bitlocker.SECTOR_BYTES, 1)
    sectors = [content[at : at + bitlocker.SECTOR_BYTES] for at in range(0, len(content), bitlocker.SECTOR_BYTES)]
    expected = b""
    for number, sector in enumerate(sectors, first):
        mode = modes.XTS(struct.pack("<QQ", number, 0))
        expected += Cipher(algorithms.AES(bitlocker.VOLUME), mode).encryptor().update(sector)
    assert bitlocker.Xts(bitlocker.VOLUME).encrypt(first, content) == expected


def test_libbde_shows_the_ntfs_and_names_the_protectors(volume: Path, ntfs: Path, bdemounted: Path) -> None:
    told = run(program("bdeinfo"), "-r", bitlocker.RECOVERY_PASSWORD, volume)
    assert "AES-XTS 128-bit" in told and "Recovery password" in told and "Startup key" in told
    assert bdemounted.read_bytes() == ntfs.read_bytes()


@pytest.mark.parametrize("copy", [1, 2, 3])
def test_dislocker_shows_the_ntfs_by_any_copy_of_the_metadata(
    tmp_path: Path, volume: Path, ntfs: Path, copy: int
) -> None:
    shown = tmp_path / "shown.raw"
    password = f"-p{bitlocker.RECOVERY_PASSWORD}"
    run(program("dislocker-file"), f"-F{copy}", "-V", volume, password, "--", shown)
    assert shown.read_bytes() == ntfs.read_bytes()


def test_dislocker_opens_it_with_the_startup_key_and_a_suspended_one_without_a_key(
    tmp_path: Path, volume: Path, ntfs: Path, startup_key: Path
) -> None:
    suspended = tmp_path / "suspended.raw"
    bitlocker.make(str(ntfs), str(suspended), clear_key=True)
    for path, key in ((volume, ["-f", startup_key]), (suspended, ["-c"])):
        shown = path.with_suffix(".shown")
        run(program("dislocker-file"), "-V", path, *key, "--", shown)
        assert shown.read_bytes() == ntfs.read_bytes()


def test_cheetah_shows_the_ntfs_with_each_key(
    tmp_path: Path, volume: Path, ntfs: Path, keys: Path, startup_key: Path
) -> None:
    suspended, content = tmp_path / "suspended.raw", ntfs.read_bytes()
    bitlocker.make(str(ntfs), str(suspended), clear_key=True)
    for path, key, protector in (
        (volume, keys, "recovery password "),
        (volume, startup_key, "startup key "),
        (suspended, Path("/dev/null"), "clear key "),
    ):
        with cheetah.open(path, unlock=[key]) as device:
            assert device.unlocked is not None and not device.locked
            (opened,) = device.unlocked["opened"]
            assert opened["protector"].startswith(protector)
            assert device.pread(opened["offset"], opened["size_bytes"]) == content


def test_verify_finds_the_ntfs_equal_to_the_content_of_the_volume(
    binary: str, volume: Path, ntfs: Path, keys: Path
) -> None:
    keys.chmod(0o600)
    run(binary, "verify", volume, "--unlock", keys, "--decrypted", ntfs)


def test_a_triage_lists_the_files_in_the_volume_as_in_the_ntfs(
    tmp_path: Path, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "_start_workers", lambda uri, settings: Alone(uri, settings))
    image, locked = triage_images.ntfs(tmp_path), tmp_path / "laptop.raw"
    bitlocker.make(str(image), str(locked))
    found = []
    for source, unlock in ((image, ()), (locked, (keys,))):
        out = tmp_path / f"{source.stem}-out"
        code, _ = triaged(source, out, *unlock)
        found.append((code, (out / "bodyfile.txt").read_bytes()))
    assert found[0] == found[1]
    assert b"/d0/plain.txt|" in found[0][1]


def test_the_same_image_makes_the_same_volume(tmp_path: Path, volume: Path, ntfs: Path) -> None:
    again = tmp_path / "again.raw"
    places = bitlocker.make(str(ntfs), str(again), startup_key=True)
    content = again.read_bytes()
    assert content == volume.read_bytes()
    assert len({content[at : at + bitlocker.PLACE_BYTES] for at in places.metadata_at}) == 1
    assert content[places.metadata_at[0] :].startswith(bitlocker.SIGNATURE)


def test_an_image_without_ntfs_or_without_room_is_refused(tmp_path: Path, ext4: Path, ntfs: Path) -> None:
    full = tmp_path / "full.raw"
    full.write_bytes(ntfs.read_bytes()[: bitlocker.HEADER_BYTES] + noise(16 * bitlocker.PLACE_BYTES, 1))
    for image in (ext4, full):
        with pytest.raises(BenchError):
            bitlocker.make(str(image), str(tmp_path / "none.raw"))
