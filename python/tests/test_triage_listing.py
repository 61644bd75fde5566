"""A triage lists what `fls -r -m /` lists: every line, in the same order, byte for byte."""

import gzip
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import MIB, PATIENCE_S, program, run
from triage_images import MADE
from triage_images import made as made
from triage_listing import Listed, at_random, by_fls

import cheetah
from cheetah.triage.listing import walk


@pytest.mark.parametrize("name", MADE)
def test_a_made_image_is_listed_as_fls_lists_it(name: str, made: Callable[[str], Path], tmp_path: Path) -> None:
    image = made(name)
    expected = by_fls(image)
    assert len(expected) > 30
    listed = Listed(image, tmp_path)
    assert listed.lines == expected
    assert listed.problems == []


@pytest.mark.parametrize("name", MADE)
def test_the_division_of_a_listing_does_not_matter(
    name: str, made: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "ENTRIES_FIRST", 3)
    monkeypatch.setattr(walk, "ENTRIES_MAX", 7)
    image = made(name)
    listed = Listed(image, tmp_path, at_random(7))
    assert listed.tasks > 3
    assert listed.lines == by_fls(image)


@pytest.mark.parametrize("name", ["ext4", "fat16", "exfat", "ntfs"])
def test_a_corrupt_file_system_is_listed_like_fls(name: str, made: Callable[[str], Path], tmp_path: Path) -> None:
    whole = bytearray(made(name).read_bytes())
    used = [at for at in range(0, len(whole), 512) if any(whole[at : at + 512])]
    flips = random.Random(name)
    image = tmp_path / "corrupt.raw"
    for attempt in range(2):
        corrupt = bytearray(whole)
        for _ in range(8):
            corrupt[flips.choice(used[: len(used) // 3]) + flips.randrange(512)] ^= 1 << flips.randrange(8)
        image.write_bytes(corrupt)
        assert Listed(image, tmp_path / f"{attempt}").lines == by_fls(image)


def test_partitions_are_listed_one_after_the_other(made: Callable[[str], Path], tmp_path: Path) -> None:
    parts = [made("fat16"), made("ext4"), made("exfat")]
    disk = tmp_path / "disk.raw"
    starts = partitioned(disk, parts)
    listed = Listed(disk, tmp_path)
    assert [volume.fs for volume in listed.volumes] == ["fat16", "ext4", "exfat", ""]
    assert [volume.start for volume in listed.volumes] == [start * 512 for start in [*starts, starts[-1] + 40000]]
    assert listed.lines == [line for start in starts for line in by_fls(disk, start)]
    (problem,) = listed.problems
    assert "no supported file system" in problem.sentence
    assert "BitLocker" in problem.sentence


def test_a_partition_table_with_large_sectors_is_read(made: Callable[[str], Path], tmp_path: Path) -> None:
    image = made("ext4")
    disk = tmp_path / "disk4k.raw"
    disk.write_bytes(gpt(image.read_bytes(), 4096))
    listed = Listed(disk, tmp_path)
    (volume,) = listed.volumes
    assert (volume.fs, volume.start, volume.sector_size) == ("ext4", 64 * 4096, 4096)
    assert listed.lines == by_fls(image)


@pytest.mark.parametrize(
    "name", ["ntfs_sample.E01", "nps-2010-emails.E01", "windows_volume.qcow2", "ntfs.bin.gz", "Base-Linear.aff4"]
)
def test_a_real_image_is_listed_as_fls_lists_it(name: str, evidence: Callable[[str], Path], tmp_path: Path) -> None:
    raw = as_raw(evidence(name), tmp_path)
    listed = Listed(raw, tmp_path)
    start = listed.volumes[0].start // 512 if listed.volumes[0].partitioned else None
    assert listed.lines == by_fls(raw, start)
    assert listed.problems == []


def as_raw(image: Path, folder: Path) -> Path:
    """The content of an image as a plain file, made by other programs than ours, where there are any."""
    raw = folder / "image.raw"
    if image.suffix == ".gz":
        raw.write_bytes(gzip.decompress(image.read_bytes()))
    elif image.suffix == ".aff4":
        with cheetah.open(image) as device, raw.open("wb") as file:
            file.truncate(device.size)
            for offset in range(0, device.size, MIB):
                piece = device.pread(offset, MIB)
                if any(piece):
                    file.seek(offset)
                    file.write(piece)
    elif image.suffix == ".E01":
        argv = [program("ewfexport"), "-q", "-u", "-f", "raw", "-t", str(folder / "image"), str(image)]
        subprocess.run(argv, capture_output=True, timeout=PATIENCE_S, check=True)
    else:
        run(program("qemu-img"), "convert", "-O", "raw", image, raw)
    return raw


def partitioned(disk: Path, images: list[Path]) -> list[int]:
    """A disk with these images in MBR partitions, and a last one that is encrypted; their first sectors."""
    table, starts, sector = b"", [], 2048
    with disk.open("wb") as file:
        for image in images:
            content = image.read_bytes()
            file.seek(sector * 512)
            file.write(content)
            table += entry(sector, len(content) // 512)
            starts.append(sector)
            sector += len(content) // 512 + 63
        starts[-1] = starts[-1]
        last = starts[-1] + 40000
        table += entry(last, 100)
        file.seek(last * 512)
        file.write(b"\xeb\x58\x90-FVE-FS-".ljust(100 * 512, b"\0"))
        file.seek(446)
        file.write(table.ljust(64, b"\0") + b"\x55\xaa")
    return starts


def entry(start: int, length: int) -> bytes:
    """An MBR entry, in sectors."""
    return b"\0\0\2\0\x07\0\0\0" + start.to_bytes(4, "little") + length.to_bytes(4, "little")


def gpt(content: bytes, sector: int) -> bytes:
    """A disk with that content in its only GPT partition, at sector 64."""
    import struct
    import zlib

    last = 64 + len(content) // sector - 1
    entries = (
        bytes(range(1, 17)) + bytes(range(17, 33)) + struct.pack("<QQQ", 64, last, 0) + "data".encode("utf-16-le")
    ).ljust(128 * 128, b"\0")

    def header(crc: int) -> bytes:
        fixed = struct.pack(
            "<8sIIIIQQQQ16sQIII",
            b"EFI PART",
            0x10000,
            92,
            crc,
            0,
            1,
            last + 40,
            40,
            last,
            bytes(16),
            2,
            128,
            128,
            zlib.crc32(entries),
        )
        return fixed.ljust(92, b"\0")

    head = header(zlib.crc32(header(0)))
    mbr = (
        bytes(446)
        + (b"\0\0\2\0\xee\0\0\0" + (1).to_bytes(4, "little") + (last + 40).to_bytes(4, "little")).ljust(64, b"\0")
        + b"\x55\xaa"
    )
    disk = bytearray(64 * sector) + content + bytes(41 * sector)
    disk[: len(mbr)] = mbr
    disk[sector : sector + len(head)] = head
    disk[2 * sector : 2 * sector + len(entries)] = entries
    return bytes(disk)
