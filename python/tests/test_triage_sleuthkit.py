"""What The Sleuth Kit reads wrongly, or not at all, is read right, named or marked."""

import hashlib
import json
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import triage_images
from conftest import MIB, program, run
from triage_images import made as made
from triage_workers import Alone

import cheetah
from cheetah.triage.hub import run as hub_run
from cheetah.triage.hub.closing import DONE, EVIDENCE
from cheetah.triage.hub.run import Run
from cheetah.triage.settings import Settings


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker, in this process."""
    monkeypatch.setattr(hub_run, "_start_workers", lambda uri, settings: Alone(uri, settings))


class Triaged:
    """A triage of an image."""

    def __init__(self, image: Path, **settings: Any):
        out = image.with_name(f"{image.name}-out")
        self.code, self.summary = Run(Settings(str(image), str(out), **settings), lambda event: None).go()
        self.files = {row["path"]: row for row in pq.read_table(out / "files.parquet").to_pylist()}
        self.findings = pq.read_table(out / "findings.parquet").to_pylist()
        self.bodyfile = (out / "bodyfile.txt").read_text(errors="replace")
        self.volumes = self.summary["volumes"]

    @property
    def said(self) -> str:
        return " ".join(problem["sentence"] for problem in self.summary["problems"])

    def describes(self) -> str:
        return " ".join(volume["description"] for volume in self.volumes)


def ext4(path: Path, *options: str, size: int = 8 * MIB, files: dict[str, str] | None = None) -> Path:
    """A volume with a file."""
    tree = path.with_name(f"{path.name}-tree")
    tree.mkdir()
    for name, text in (files or {"hello.txt": "hello"}).items():
        (tree / name).write_text(text)
    with path.open("wb") as file:
        file.truncate(size)
    run(program("mkfs.ext4"), "-q", "-F", *options, "-d", tree, path)
    return path


def put(path: Path, *places: tuple[int, bytes], size: int | None = None) -> Path:
    """Writes bytes into a file, which is made if `size` is given."""
    with path.open("r+b" if size is None else "wb") as file:
        if size is not None:
            file.truncate(size)
        for offset, content in places:
            file.seek(offset)
            file.write(content)
    return path


def record(*entries: tuple[int, int, int]) -> bytes:
    """The end of a boot record: entries of a type, a first sector and a number of sectors."""
    packed = [struct.pack("<B3xB3xII", 0, *entry) for entry in entries]
    return b"".join(packed).ljust(64, b"\0") + b"\x55\xaa"


def put_record(path: Path, *entries: tuple[int, int, int]) -> Path:
    return put(path, (446, record(*entries)))


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A disk of 16 MiB with ext4 at 1 MiB, without a table."""
    content = ext4(tmp_path / "fs", "-b", "4096").read_bytes()
    return put(tmp_path / "disk.raw", (MIB, content), size=16 * MIB)


def test_an_mbr_of_a_disk_with_large_sectors_is_counted_in_them(disk: Path, tmp_path: Path) -> None:
    put_record(disk, (0x83, 256, 2048))
    unknown = Triaged(disk)
    assert "/hello.txt" in unknown.files and unknown.code == DONE
    assert "not recorded" in unknown.said
    run(program("ewfacquire"), "-q", "-u", "-f", "encase6", "-P", "4096", "-c", "fast", "-t", tmp_path / "e", disk)
    with cheetah.open(tmp_path / "e.E01") as device:
        assert device.sector_size == 4096
    known = Triaged(tmp_path / "e.E01")
    assert "/hello.txt" in known.files
    assert (known.volumes[0]["start"], known.volumes[0]["sector_size"]) == (MIB, 4096)
    assert known.summary["problems"] == []


def test_the_size_of_a_sector_that_the_user_gives_decides(disk: Path, tmp_path: Path) -> None:
    put_record(disk, (0x83, 256, 2048))
    assert "/hello.txt" not in Triaged(disk, sector_size=512, fresh=True).files
    small = put(disk, (256 * 512, b"XFSB"))
    assert Triaged(small, sector_size=4096, fresh=True).volumes[0]["start"] == MIB
    both = put(tmp_path / "both.raw", (0, small.read_bytes()), size=16 * MIB)
    ambiguous = Triaged(both)
    assert "/hello.txt" in ambiguous.files and "both lead to known formats" in ambiguous.said


def test_an_mbr_beside_an_old_apple_map_is_read_and_both_are_named(disk: Path) -> None:
    put_record(disk, (0x83, 2048, 16384))
    entry = struct.pack(">2sHIII32s32sIII", b"PM", 0, 2, 1, 63, b"Apple", b"Apple_partition_map", 0, 63, 0x33)
    second = struct.pack(">2sHIII32s32sIII", b"PM", 0, 2, 26624, 2048, b"disk", b"Apple_HFS", 0, 2048, 0x33)
    put(disk, (512, entry.ljust(512, b"\0") + second.ljust(512, b"\0")))
    found = Triaged(disk)
    assert "/hello.txt" in found.files and found.code == DONE
    assert "an Apple partition map" in found.said


def test_a_file_system_that_only_the_unused_table_names_is_listed_too(disk: Path, tmp_path: Path) -> None:
    other = ext4(tmp_path / "other", size=4 * MIB, files={"other.txt": "other"}).read_bytes()
    put_record(disk, (0x83, 2048, 16384))
    entry = struct.pack(">2sHIII32s32sIII", b"PM", 0, 1, 24576, 8192, b"disk", b"Apple_UNIX", 0, 8192, 0x33)
    put(disk, (512, entry.ljust(512, b"\0")), (12 * MIB, other))
    found = Triaged(disk)
    assert {"/hello.txt", "/other.txt"} <= set(found.files)
    assert "according to an Apple partition map" in found.describes()


def test_a_protective_mbr_without_a_gpt_is_a_gap(disk: Path) -> None:
    put_record(disk, (0xEE, 1, 32767))
    found = Triaged(disk)
    assert found.code == EVIDENCE and "no copy of it can be used" in found.said
    assert found.summary["verdict"] == "gaps"


def test_the_backup_of_a_gpt_is_used(disk: Path) -> None:
    run(program("sgdisk"), "-n", "1:2048:18431", disk)
    put(disk, (512, bytes(33 * 512)))
    found = Triaged(disk)
    assert "/hello.txt" in found.files and "backup" in found.said


@pytest.mark.parametrize(
    ("places", "name"),
    [
        ([(4096, bytes.fromhex("fc4e2ba901000000"))], "md 1.2"),
        ([(0, bytes.fromhex("fc4e2ba901000000"))], "md 1.1"),
        ([(8 * MIB - 8192, bytes.fromhex("fc4e2ba901000000"))], "md 1.0"),
        ([(8 * MIB - 65536, bytes.fromhex("fc4e2ba900000000"))], "md 0.90"),
        ([(0x20000 + 1024 * n, bytes.fromhex("0cb1ba0000000000")) for n in range(128)], "ZFS"),
        ([(536, b"LVM2 001")], "LVM2"),
        ([(0x1018, bytes.fromhex("c68573f64e1a45ca8265f57f48ba6d81"))], "bcache"),
        ([(0, b"bluestore block device")], "BlueStore"),
        ([(8 * MIB - 1024, b"Intel Raid ISM Cfg Sig. 1.1.00")], "Intel RAID"),
        ([(8 * MIB - 512, bytes.fromhex("de11de11"))], "DDF"),
        ([(8 * MIB - 4096 + 60, bytes.fromhex("8374026b"))], "DRBD"),
        ([(1024, struct.pack("<IHHH", 2, 0, 0x3434, 280))], "NILFS2"),
        ([(0x8000, b"JFS1")], "JFS"),
        ([(0x10034, b"ReIsEr2Fs")], "ReiserFS"),
        ([(0, b"-rom1fs-")], "romfs"),
        ([(1024, bytes.fromhex("e2e1f5e0"))], "EROFS"),
        ([(0x200000, bytes.fromhex("5ef1ab2f"))], "VMFS"),
        ([(0x8001, b"BEA01"), (0x8801, b"NSR03")], "UDF"),
        ([(0xC00, b"PRIVHEAD")], "LDM"),
        ([(0xFF6, b"SWAPSPACE2")], "swap"),
    ],
)
def test_a_format_that_is_not_listed_is_named(tmp_path: Path, places: list[tuple[int, bytes]], name: str) -> None:
    found = Triaged(put(tmp_path / "volume", *places, size=8 * MIB))
    assert name in found.describes() and "no supported file system" in found.said
    # Of an array, the checksum of the superblock is wrong, so a member is not used: that is missing from the result.
    assert found.code == (EVIDENCE if name.startswith("md") else DONE) and found.summary["verdict"] == "gaps"


@pytest.mark.parametrize(
    ("places", "name"),
    [
        # A record of a log, as mkfs.xfs leaves it; and the superblock of a journal, as mke2fs makes it.
        ([(0, struct.pack(">IIII284xI", 0xFEEDBABE, 1, 2, 512, 1))], "external log of an XFS file system"),
        ([(1024 + 56, struct.pack("<H", 0xEF53)), (1024 + 96, struct.pack("<I", 8))], "journal of an ext file system"),
    ],
)
def test_a_log_apart_from_its_file_system_is_named(tmp_path: Path, places: list[tuple[int, bytes]], name: str) -> None:
    found = Triaged(put(tmp_path / "volume", *places, size=8 * MIB))
    assert name in found.describes()
    assert f"hold the {name}" in found.said and "no supported file system" not in found.said


def test_a_partition_with_the_name_of_a_log_is_not_taken_for_one(tmp_path: Path) -> None:
    image = put(tmp_path / "disk.raw", (MIB, b"\x01" * 4096), size=16 * MIB)
    run(program("sgdisk"), "-n", "1:2048:18431", "-c", "1:journal of an ext file system", image)
    found = Triaged(image)
    assert "journal of an ext file system" in found.describes()
    assert "no supported file system" in found.said and "hold the journal" not in found.said


def test_a_file_system_that_the_sleuth_kit_refuses_is_named_with_its_reason(tmp_path: Path) -> None:
    found = Triaged(ext4(tmp_path / "fs", "-O", "bigalloc", "-C", "16384", size=40 * MIB))
    assert "ext4 with bigalloc" in found.describes()
    if not found.volumes[0]["fs"]:
        assert found.code == EVIDENCE and "does not open" in found.said


def test_a_place_that_looks_like_two_file_systems_is_listed_as_both(tmp_path: Path) -> None:
    image = ext4(tmp_path / "fs")
    # The boot sector of FAT lies in front of ext4's superblock, which leaves it alone.
    fat = tmp_path / "fat"
    with fat.open("wb") as file:
        file.truncate(8 * MIB)
    run(program("mkfs.vfat"), "-F", "12", "-R", "64", fat)
    content = fat.read_bytes()
    put(image, (0, content[:1024]))
    found = Triaged(image)
    assert "ext4" in [volume["fs"] for volume in found.volumes]
    assert "/hello.txt" in found.files


def test_an_unreadable_start_of_a_volume_is_a_gap(disk: Path) -> None:
    from triage_worker import Raw

    put_record(disk, (0x83, 2048, 16384))
    from cheetah.triage.filesystem import volumes
    from cheetah.triage.reading.worker import Worker

    worker = Worker(str(disk), Settings(str(disk), "/nonexistent"))
    worker.source = Raw(disk, (MIB, MIB + 4096))
    result = volumes.find(worker, volumes.task())
    assert any(problem.gap and "bad sector" in problem.sentence for problem in result.problems), result.problems


def prealloc(folder: Path, valid: int, size: int, deleted: bool = False, at_border: bool = False) -> Path:
    """exFAT with a file of which only a part is valid; behind it are remains of another."""
    volume = triage_images.ExFat(folder / "exfat.raw")
    before = volume.file("filler.bin", b"x") * 0
    if at_border:
        # The entry of the file is the last in its cluster.
        before = b"".join(volume.file(f"{number:03}.txt", b"") for number in range(41))
        before += b"\x05" + bytes(31)
        before = before[: volume.CLUSTER - len(volume._root) - 32].ljust(
            volume.CLUSTER - len(volume._root) - 32, b"\x05"
        )
    content = (b"V" * valid + b"remains-of-another-file " * size)[:size]
    entries = bytearray(volume.file("prealloc.bin", content, deleted))
    struct.pack_into("<Q", entries, 32 + 8, valid)
    mask = 0x7F if deleted else 0xFF
    checksum = 0
    for at, byte in enumerate(entries):
        if at not in (2, 3):
            checksum = (
                (checksum << 15 | checksum >> 1) + (byte | (0x80 if at % 32 == 0 and mask == 0x7F else 0))
            ) & 0xFFFF
    struct.pack_into("<H", entries, 2, checksum)
    return volume.write(before + bytes(entries))


@pytest.mark.parametrize(("valid", "size"), [(5000, 12288), (0, 9000), (4096, 8192), (8192, 8192), (1, 3 * MIB)])
def test_what_lies_behind_the_valid_length_of_a_file_is_zeros(tmp_path: Path, valid: int, size: int) -> None:
    words = tmp_path / "words"
    words.write_text("remains-of-another-file\n")
    found = Triaged(prealloc(tmp_path, valid, size), keywords=(str(words),))
    row = found.files["/prealloc.bin"]
    assert row["md5"] == hashlib.md5(b"V" * valid + bytes(size - valid), usedforsecurity=False).hexdigest()
    assert row["read_state"] == "whole" and found.code == DONE
    assert "/prealloc.bin" not in [finding["path"] for finding in found.findings]


def test_a_longer_bitmap_of_exfat_is_accepted_and_said(tmp_path: Path) -> None:
    volume = triage_images.ExFat(tmp_path / "exfat.raw")
    image = volume.write(volume.file("hello.txt", b"hello"))
    content = bytearray(image.read_bytes())
    at = content.index(struct.pack("<BB18xI", 0x81, 0, volume._bitmap)) + 24
    needed = -(-volume.CLUSTERS // 8)
    put(image, (at, struct.pack("<Q", needed + 2)))
    found = Triaged(image)
    assert found.volumes[0]["fs"] == "exfat" and "/hello.txt" in found.files
    assert f"recorded with {needed + 2} bytes" in found.said and found.code == DONE


def test_times_of_exfat_are_in_utc(tmp_path: Path) -> None:
    volume = triage_images.ExFat(tmp_path / "exfat.raw", zone=0x80 | 126)
    found = Triaged(volume.write(volume.file("hello.txt", b"hello")))
    local = 1715953062
    # Half an hour west of UTC, which is thus later.
    assert found.files["/hello.txt"]["crtime"] == local + 1800


@pytest.mark.parametrize(
    "options",
    [("-I", "256"), ("-I", "128"), ("-I", "256", "-O", "meta_bg,^resize_inode"), ("-I", "256", "-O", "64bit")],
)
def test_times_of_ext4_have_their_sign_and_their_further_bits(tmp_path: Path, options: tuple[str, ...]) -> None:
    times = {"y1960": -315619200, "y1902": -2145916800, "y2000": 946684800, "y2030": 1893456000}
    if "256" in options:
        times |= {"y2040": 2208988800, "y2200": 7258118400, "y2440": 14831769600}
    image = ext4(tmp_path / "fs", *options, files=dict.fromkeys(times, "x"))
    for name, time in times.items():
        run(program("debugfs"), "-w", "-R", f"set_inode_field {name} mtime @{time}", image)
    found = Triaged(image)
    assert {name: found.files[f"/{name}"]["mtime"] for name in times} == times
    shown = {line.split("|")[1][1:]: int(line.split("|")[8]) for line in found.bodyfile.splitlines()}
    assert {name: shown[name] for name in times} == times


def test_times_of_ntfs_before_1970_and_after_2106_are_shown(made: Callable[[str], Path], tmp_path: Path) -> None:
    image = put(tmp_path / "ntfs", (0, made("ntfs").read_bytes()), size=24 * MIB)
    content = image.read_bytes()
    wide = "bottom.txt".encode("utf-16-le")
    names = [found.start() for found in re.finditer(re.escape(wide), content)]
    # The name is in the record of its folder, too, which is an earlier one.
    at = max(at for name in names if name - (at := content.rindex(b"FILE0", 0, name)) < 1024)
    standard = at + struct.unpack_from("<H", content, at + 20)[0]
    assert struct.unpack_from("<I", content, standard)[0] == 16
    to_1970 = 11_644_473_600
    times = (-315619200, 7258118400, 1, 4_400_000_000)
    put(image, (standard + 24, struct.pack("<4Q", *((time + to_1970) * 10**7 for time in times))))
    found = Triaged(image)
    row = next(row for path, row in found.files.items() if path.endswith("bottom.txt") and row["attr_type"] == 128)
    assert (row["crtime"], row["mtime"], row["ctime"], row["atime"]) == times


def test_a_file_of_ntfs_that_windows_keeps_elsewhere_is_not_trusted() -> None:
    from cheetah.triage.filesystem import distrust

    class Attribute:
        class info:
            type, id = 192, 3

    class File(list):  # type: ignore[type-arg]
        def __init__(self, tag: int):
            super().__init__([Attribute()])
            self._tag = tag

        def read_random(self, *where: int) -> bytes:
            return struct.pack("<I", self._tag)

    assert "WOF" in str(distrust.elsewhere(File(0x80000017)))  # type: ignore[arg-type]
    assert "cloud" in str(distrust.elsewhere(File(0x9000601A)))  # type: ignore[arg-type]
    assert distrust.elsewhere(File(0xA000000C)) is None  # type: ignore[arg-type]


def test_remarks_do_not_make_the_verdict_yellow(disk: Path, tmp_path: Path) -> None:
    words = tmp_path / "words"
    words.write_text("hello\n")
    put_record(disk, (0x83, 256, 2048))
    found = Triaged(disk, keywords=(str(words),))
    assert found.summary["problems"] and found.summary["verdict"] == "whole"
    assert json.loads(json.dumps(found.summary))["coverage"]["files"]["unreadable"]["files"] == 0
