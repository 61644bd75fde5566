"""Images of file systems with everything that makes listing hard: names, links, streams, deleted files, orphans."""

import os
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import MIB, noise, program, run

NAMES = (
    "plain.txt",
    "übergröße.dat",
    "日本語.doc",
    "with space.pdf",
    "dots...",
    "UPPER.TXT",
    "tab\there",
    "new\nline",
    "a" * 200,
)


def fill(folder: Path, odd_names: bool = True) -> None:
    """A tree: folders deep and wide, files of all sizes, odd names."""
    for number in range(40):
        deep = folder / f"d{number % 7}" / f"sub{number % 3}"
        deep.mkdir(parents=True, exist_ok=True)
        (deep / f"file{number:02}.bin").write_bytes(noise(number * 700, number))
    for number, name in enumerate(NAMES if odd_names else NAMES[:1]):
        (folder / "d0" / name).write_bytes(noise(number * 10, number))
    for word in ("Users", "Windows", "home", "pagefile.sys", "Programs"):
        (folder / word).mkdir()
        (folder / word / "inside.txt").write_text(word)
    deep = folder
    for level in range(25):
        deep /= f"level{level}"
        deep.mkdir()
    (deep / "bottom.txt").write_text("bottom")


def ext4(folder: Path) -> Path:
    """ext4, with links, special files and deleted ones."""
    tree = folder / "ext4-tree"
    tree.mkdir()
    fill(tree)
    (tree / "link").symlink_to("d0/plain.txt")
    (tree / "dangling").symlink_to("/nowhere/at/all/" + "x" * 80)
    os.link(tree / "d0/plain.txt", tree / "hard")
    os.mkfifo(tree / "fifo")
    (tree / "d1").chmod(0o1777)
    (tree / "d2/sub2/file02.bin").chmod(0o6755)
    image = folder / "ext4.raw"
    run(program("mkfs.ext4"), "-q", "-F", "-d", tree, image, "24M")
    gone = [f"rm /d3/sub0/file{number:02}.bin" for number in (3, 24)] + [
        "rm /home/inside.txt",
        "rmdir /home",
        "kill_file /d4",
    ]
    requests = folder / "requests"
    requests.write_text("\n".join(gone))
    run(program("debugfs"), "-w", "-f", requests, image)
    return image


def fat(folder: Path, bits: int) -> Path:
    """FAT with that many bits, and deleted files and folders."""
    tree = folder / f"fat{bits}-tree"
    tree.mkdir()
    fill(tree, odd_names=False)
    size = {12: 4, 16: 24, 32: 72}[bits]
    image = folder / f"fat{bits}.raw"
    with image.open("wb") as file:
        file.truncate(size * MIB)
    run(program("mkfs.fat"), "-F", str(bits), "-n", "CASE42", *(["-s", "1"] if bits != 12 else []), image)
    program("mcopy")
    environment = {**os.environ, "MTOOLS_SKIP_CHECK": "1"}
    run("mcopy", "-s", "-Q", "-i", image, *sorted(tree.iterdir()), "::/", env=environment)
    run("mdel", "-i", image, "::/d0/plain.txt", "::/d3/sub0/file03.bin", env=environment)
    run("mdeltree", "-i", image, "::/d5", "::/Programs", env=environment)
    return image


def ntfs(folder: Path) -> Path:
    """NTFS, with streams, links, a file of many names, and deleted folders. Made through a mount, so it takes root
    and FUSE."""
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        pytest.skip("needs root and FUSE, to fill an NTFS volume")
    image = folder / "ntfs.raw"
    with image.open("wb") as file:
        file.truncate(24 * MIB)
    run(program("mkntfs"), "-F", "-Q", "-q", "-c", "4096", image)
    mount = folder / "mnt"
    mount.mkdir()
    run(program("ntfs-3g"), "-o", "streams_interface=windows,uid=0", image, mount)
    try:
        fill(mount)
        (mount / "d0/plain.txt:hidden").write_bytes(noise(5000, 1))
        (mount / "d0:of a folder").write_bytes(b"a stream of a folder")
        (mount / "d0/plain.txt:Zone.Identifier").write_bytes(b"[ZoneTransfer]\r\nZoneId=3\r\n")
        (mount / "link").symlink_to("d0/plain.txt")
        for number in range(60):
            os.link(mount / "d1/sub1/file01.bin", mount / "d1" / f"{'name' * 10}{number:03}.bin")
        for name in ("d3/sub0/file03.bin", "d3/sub0/file24.bin"):
            (mount / name).unlink()
        subprocess.run(["rm", "-r", mount / "d5", mount / "Programs"], check=True)
        (mount / "d6/newcomer.txt").write_text("takes the place of what was deleted")
    finally:
        run("umount", mount)
    return image


class ExFat:
    """An exFAT volume written by hand, because no available program fills one without a mount."""

    SECTOR, CLUSTER, FAT_AT, FAT_SECTORS, HEAP_AT, CLUSTERS = 512, 4096, 128, 64, 256, 4000

    def __init__(self, path: Path, zone: int = 0x80):
        """`zone` is the byte that says how far its times are from UTC."""
        self.path = path
        self._zone = zone
        self._next = 2
        self._content: dict[int, bytes] = {}
        self._fat: dict[int, int] = {}
        bitmap = self._allocate(bytes(-(-self.CLUSTERS // 8)))
        upcase = self._allocate(struct.pack("<128H", *range(128)))
        self._bitmap = bitmap
        self._root = b"\x83\x06" + "CASE42".encode("utf-16-le").ljust(22, b"\0") + bytes(8)
        self._root += struct.pack("<BB18xIQ", 0x81, 0, bitmap, -(-self.CLUSTERS // 8))
        self._root += struct.pack("<B3xI12xIQ", 0x82, 0, upcase, 256)

    def _allocate(self, content: bytes) -> int:
        """Neighbouring clusters with that content; the first of them."""
        count = max(1, -(-len(content) // self.CLUSTER))
        first, self._next = self._next, self._next + count
        for number in range(count):
            self._content[first + number] = content[number * self.CLUSTER : (number + 1) * self.CLUSTER]
            self._fat[first + number] = first + number + 1 if number + 1 < count else 0xFFFFFFFF
        return first

    def file(self, name: str, content: bytes, deleted: bool = False, folder: bool = False) -> bytes:
        """The directory entries of a file, whose content is written."""
        wide = name.encode("utf-16-le")
        pieces = [wide[at : at + 30] for at in range(0, len(wide), 30)]
        first = self._allocate(content) if content else 0
        size = -(-len(content) // self.CLUSTER) * self.CLUSTER if folder else len(content)
        when = (2024 - 1980) << 25 | 5 << 21 | 17 << 16 | 13 << 11 | 37 << 5 | 21
        entry = struct.pack(
            "<BBHHHIII5B7x",
            0x85,
            len(pieces) + 1,
            0,
            0x10 if folder else 0x20,
            0,
            when,
            when + 1,
            when + 2,
            0,
            0,
            self._zone,
            self._zone,
            self._zone,
        )
        stream = struct.pack("<BBBBHHQIIQ", 0xC0, 0x01, 0, len(name), 0, 0, size, 0, first, size)
        entries = bytearray(entry + stream)
        for piece in pieces:
            entries += b"\xc1\0" + piece.ljust(30, b"\0")
        checksum = 0
        for at, byte in enumerate(entries):
            if at not in (2, 3):
                checksum = ((checksum << 15 | checksum >> 1) + byte) & 0xFFFF
        struct.pack_into("<H", entries, 2, checksum)
        if deleted:
            for at in range(0, len(entries), 32):
                entries[at] &= 0x7F
        return bytes(entries)

    def write(self, entries: bytes) -> Path:
        """Writes the volume, with these in its root."""
        root = self._allocate(self._root + entries)
        used = self._next - 2
        bits = ((1 << used) - 1).to_bytes(-(-self.CLUSTERS // 8), "little")
        self._content[self._bitmap] = bits
        sectors = self.HEAP_AT + self.CLUSTERS * self.CLUSTER // self.SECTOR
        boot = struct.pack(
            "<3s8s53xQQIIIIIIHHBBBBB",
            b"\xeb\x76\x90",
            b"EXFAT   ",
            0,
            sectors,
            self.FAT_AT,
            self.FAT_SECTORS,
            self.HEAP_AT,
            self.CLUSTERS,
            root,
            0x42,
            0x100,
            0,
            9,
            3,
            1,
            0x80,
            1,
        )
        with self.path.open("wb") as file:
            file.truncate(sectors * self.SECTOR)
            for at in (0, 12 * self.SECTOR):
                file.seek(at)
                file.write(boot.ljust(510, b"\0") + b"\x55\xaa")
            file.seek(self.FAT_AT * self.SECTOR)
            file.write(struct.pack("<II", 0xFFFFFFF8, 0xFFFFFFFF))
            file.write(b"".join(struct.pack("<I", self._fat[number]) for number in range(2, self._next)))
            for number, content in self._content.items():
                file.seek(self.HEAP_AT * self.SECTOR + (number - 2) * self.CLUSTER)
                file.write(content)
        return self.path


def exfat(folder: Path) -> Path:
    """exFAT, with folders, long names, and deleted ones of both."""
    volume = ExFat(folder / "exfat.raw")
    inner = b"".join(
        volume.file(f"file number {number} of this folder.bin", noise(number * 3000, number), number % 4 == 3)
        for number in range(20)
    )
    deep = volume.file("inner", inner, folder=True)
    gone = volume.file("inside what is gone.txt", b"gone", deleted=True)
    root = volume.file("letter.txt", b"Dear Sir,") + volume.file(
        "folder", deep + volume.file("übergröße.txt", b"x"), folder=True
    )
    root += volume.file("gone folder", gone, deleted=True, folder=True) + volume.file(
        "gone.txt", b"gone too", deleted=True
    )
    root += volume.file("pagefile.sys", bytes(9000)) + volume.file("Users", inner[:128], folder=True)
    return volume.write(root)


MADE = {
    "ext4": ext4,
    "fat12": lambda folder: fat(folder, 12),
    "fat16": lambda folder: fat(folder, 16),
    "fat32": lambda folder: fat(folder, 32),
    "exfat": exfat,
    "ntfs": ntfs,
}
"""Every kind that is made here, by a name."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Makes one of the images, once."""
    images: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in images:
            images[name] = MADE[name](tmp_path_factory.mktemp(name))
        return images[name]

    return make
