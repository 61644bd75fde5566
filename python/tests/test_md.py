"""Arrays of Linux's software RAID: read as GRUB reads them, and triaged."""

import lzma
import struct
from pathlib import Path

import pytest
import triage_images
from conftest import MIB, ROOT, program, run
from test_lvm import GROUP, Group, grown, require
from test_unlock import triaged
from triage_workers import Alone

import cheetah
from cheetah.triage.hub import run as hub
from cheetah.triage.hub.closing import DONE, EVIDENCE

ARRAYS = ROOT / "crates/evidence/volume/tests/arrays"
"""Disks that mdadm and the kernel made, with a member in each partition: see workshop/boot/tests/md_arrays.py."""
CHUNK_BYTES = 64 << 10
ID = bytes(range(16))


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker, in this process."""
    monkeypatch.setattr(hub, "_start_workers", lambda uri, settings: Alone(uri, settings))


def partitions(disk: bytes) -> list[bytes]:
    """The partitions of a disk."""
    places = (struct.unpack_from("<II", disk, 454 + 16 * number) for number in range(4))
    return [disk[first * 512 :][: count * 512] for first, count in places if count]


def disk(path: Path, members: list[bytes]) -> Path:
    """A disk with a member in each of its partitions."""
    entries, at = b"", 2048
    for member in members:
        entries += struct.pack("<B3xB3xII", 0, 0xFD, at, len(member) // 512)
        at += len(member) // 512
    table = bytes(446) + entries.ljust(64, b"\0") + b"\x55\xaa"
    path.write_bytes(table.ljust(MIB, b"\0") + b"".join(members))
    return path


def superblock(number: int, size: int, level: int = 5, members: int = 3, start: int = MIB, place: int = 4096) -> bytes:
    """The superblock, of version 1, of a member of a RAID 1, or of a RAID 5 (left symmetric) (Linux: include/uapi/linux/raid/md_p.h).
    Its data of `size` bytes are at `start`, and it is at `place`."""
    block = bytearray(256)
    struct.pack_into("<III4x16s32s", block, 0, 0xA92B4EFC, 1, 0, ID, b"lab:home")
    struct.pack_into("<IIQII", block, 72, level, 2, size // 512, CHUNK_BYTES // 512, members)
    struct.pack_into("<QQQ", block, 128, start // 512, size // 512, place // 512)
    struct.pack_into("<I", block, 160, number)
    struct.pack_into("<QQQ", block, 192, 0, 7, 2**64 - 1)
    # As many roles as make whole words.
    struct.pack_into("<I", block, 220, 4)
    block += struct.pack("<4H", *(role if role < members else 0xFFFF for role in range(4)))
    words = sum(struct.unpack("<66I", block))
    struct.pack_into("<I", block, 216, (words & 0xFFFFFFFF) + (words >> 32))
    return bytes(block)


def raid5(content: bytes) -> list[bytes]:
    """The members of a RAID 5 (left symmetric) of three with this content."""
    content = content.ljust(-(-len(content) // (2 * CHUNK_BYTES)) * 2 * CHUNK_BYTES, b"\0")
    data: list[list[bytes]] = [[], [], []]
    for row in range(len(content) // (2 * CHUNK_BYTES)):
        first, second = (content[(2 * row + side) * CHUNK_BYTES :][:CHUNK_BYTES] for side in (0, 1))
        parity = 2 - row % 3
        mixed = int.from_bytes(first, "big") ^ int.from_bytes(second, "big")
        data[parity].append(mixed.to_bytes(CHUNK_BYTES, "big"))
        data[(parity + 1) % 3].append(first)
        data[(parity + 2) % 3].append(second)
    joined = [b"".join(chunks) for chunks in data]
    heads = [(bytes(4096) + superblock(number, len(joined[0]))).ljust(MIB, b"\0") for number in range(3)]
    return [head + one for head, one in zip(heads, joined, strict=True)]


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("one-end", 1),
        ("four", 1),
        *((f"five-{layout}", 1) for layout in ("la", "ra", "ls", "rs")),
        *((f"six-{layout}", 2) for layout in ("la", "ra", "ls", "rs")),
        ("ten-near", 1),
        ("ten-three", 1),
    ],
)
def test_an_array_reads_as_grub_reads_it(name: str, missing: int, tmp_path: Path) -> None:
    grub = program("grub-fstest")
    whole = partitions(lzma.decompress((ARRAYS / f"{name}.raw.xz").read_bytes()))
    for members in whole, whole[missing:]:
        files = [tmp_path / f"member{number}" for number in range(len(members))]
        for file, member in zip(files, members, strict=True):
            file.write_bytes(member)
        with cheetah.open(disk(tmp_path / "disk.raw", members)) as device:
            (array,) = device.logical["volumes"]
            content = device.pread(array["offset"], array["size_bytes"])
        assert (array["kind"], array["name"], "group" in array) == ("md", f"lab:{name}", False)
        copy = tmp_path / "copy"
        place = f"(mduuid/{array['id'].replace(':', '')})0+{array['size_bytes'] // 512}"
        run(grub, "-c", str(len(files)), *files, "cp", place, copy)
        assert content == copy.read_bytes()


def test_files_in_an_array_are_listed_as_in_the_file_system_alone(tmp_path: Path) -> None:
    image = triage_images.ext4(tmp_path)
    members = raid5(image.read_bytes())
    triaged(image, tmp_path / "plain")
    for name, present, said in (
        ("whole", members, "RAID 5 array lab:home"),
        ("less", members[1:], "member 0 is not here"),
    ):
        code, summary = triaged(disk(tmp_path / f"{name}.raw", present), tmp_path / name)
        (volume,) = [one for one in summary["volumes"] if one["fs"]]
        assert (volume["fs"], volume["length"]) == ("ext4", 24 * MIB)
        assert said in volume["description"]
        assert code == DONE, summary["problems"]
        assert (tmp_path / name / "bodyfile.txt").read_bytes() == (tmp_path / "plain/bodyfile.txt").read_bytes()


def test_an_array_with_too_few_members_is_a_gap(tmp_path: Path) -> None:
    path = disk(tmp_path / "disk.raw", raid5(bytes(MIB))[:1])
    with cheetah.open(path) as device:
        assert not device.logical["volumes"]
    code, summary = triaged(path, tmp_path / "out")
    assert code == EVIDENCE
    said = " ".join(one["sentence"] for one in summary["problems"] if one["gap"])
    assert "RAID 5 of 3 members, and members 1 and 2 are not here" in said


def test_a_file_system_that_begins_where_its_mirror_does_is_listed_once(tmp_path: Path) -> None:
    image = triage_images.ext4(tmp_path).read_bytes()
    place = len(image) + (8 << 10)
    block = superblock(1, len(image), level=1, members=2, start=0, place=place)
    member = image.ljust(place, b"\0") + block.ljust(8 << 10, b"\0")
    code, summary = triaged(disk(tmp_path / "disk.raw", [member]), tmp_path / "out")
    assert code == DONE, summary["problems"]
    assert [one["fs"] for one in summary["volumes"] if one["fs"]] == ["ext4"]
    (array,) = summary["source"]["logical"]["volumes"]
    assert (array["kind"], array["offset"]) == ("md", MIB)


def test_logical_volumes_on_an_array_are_found(tmp_path: Path) -> None:
    image = triage_images.ext4(tmp_path)
    require()
    group = Group(tmp_path, 1)
    try:
        group.add("root", "-l", "26", GROUP)
        group.plant("root", grown(image, 26 * MIB))
    finally:
        group.detach()
    path = disk(tmp_path / "disk.raw", raid5(group.images[0].read_bytes())[1:])
    with cheetah.open(path) as device:
        assert not device.logical["not_opened"]
        array, root = device.logical["volumes"]
        assert (array["kind"], root["kind"]) == ("md", "lvm2")
        assert device.pread(root["offset"], root["size_bytes"]) == grown(image, 26 * MIB)
    code, summary = triaged(path, tmp_path / "out")
    assert code == DONE, summary["problems"]
    triaged(image, tmp_path / "plain")
    assert (tmp_path / "out/bodyfile.txt").read_bytes() == (tmp_path / "plain/bodyfile.txt").read_bytes()
