"""Disks for guests: every kind of adapter, and content that a careless system would change."""

from __future__ import annotations

import hashlib
import os
import struct
import subprocess
from collections.abc import Sequence
from typing import BinaryIO

MIB = 1 << 20


def sha256(path: str) -> str:
    """Returns the SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def every_adapter(paths: Sequence[str]) -> list[str]:
    """Returns QEMU's options that attach five disks: SATA, NVMe, USB, virtio and SD."""
    sata, nvme, usb, virtio, card = paths
    argv = ["-device", "ahci,id=ahci", "-device", "qemu-xhci,id=xhci", "-device", "sdhci-pci"]
    for name, path, device in (
        ("sata", sata, "ide-hd,drive=sata,bus=ahci.0"),
        ("nvme", nvme, "nvme,drive=nvme,serial=n1"),
        ("usb", usb, "usb-storage,drive=usb,bus=xhci.0"),
        ("virtio", virtio, "virtio-blk-pci,drive=virtio"),
        ("card", card, "sd-card,drive=card"),
    ):
        argv += ["-drive", f"if=none,id={name},file={path},format=raw,cache=writethrough", "-device", device]
    return argv


def blank(path: str, size: int = 16 * MIB) -> str:
    """Makes a disk of random content; returns its path."""
    with open(path, "wb") as file:
        file.write(os.urandom(size))
    return path


def dirty_ext4(path: str) -> str:
    """Makes an ext4 file system that was not unmounted: its journal has to be replayed."""
    with open(path, "wb") as file:
        file.truncate(32 * MIB)
    subprocess.run(["mkfs.ext4", "-q", "-F", path], check=True)
    # The journal's own tool writes a transaction and leaves it unreplayed.
    script = "jo -f\njw -b 9000 /dev/zero\njc\n"
    subprocess.run(["debugfs", "-w", "-f", "-", path], input=script, text=True, check=True, capture_output=True)
    shown = subprocess.run(["dumpe2fs", "-h", path], text=True, capture_output=True, check=True).stdout
    assert "needs_recovery" in shown, shown
    return path


def pending_ntfs(path: str) -> str:
    """Makes an NTFS volume whose log is in use: Windows, or a driver that replays it, would write to the volume."""
    with open(path, "wb") as file:
        file.truncate(16 * MIB)
    argv = ["mkntfs", "-q", "-f", "-F", "-s", "512", "-p", "0", "-H", "16", "-S", "63", path]
    subprocess.run(argv, check=True, capture_output=True)
    with open(path, "r+b") as file:
        boot = file.read(512)
        cluster = struct.unpack_from("<H", boot, 11)[0] * boot[13]
        table = struct.unpack_from("<Q", boot, 48)[0] * cluster
        # $LogFile is the third record of the table; its content begins where the first run of the attribute $DATA says.
        file.seek(table + 2 * 1024)
        record = file.read(1024)
        at = struct.unpack_from("<H", record, 20)[0]
        while struct.unpack_from("<I", record, at)[0] != 0x80:
            at += struct.unpack_from("<I", record, at + 4)[0]
        size = struct.unpack_from("<Q", record, at + 48)[0]
        run = at + struct.unpack_from("<H", record, at + 32)[0]
        count, places = record[run] & 15, record[run] >> 4
        first = int.from_bytes(record[run + 1 + count : run + 1 + count + places], "little", signed=True)
        for page in range(2):
            file.seek(first * cluster + page * 4096)
            file.write(_restart_page(size))
    # The NTFS driver's own check: 15 is "was not shut down cleanly".
    assert subprocess.run(["ntfs-3g.probe", "--readwrite", path], check=False, capture_output=True).returncode == 15
    return path


def _restart_page(log_size: int) -> bytes:
    """Returns a restart page of the NTFS log that names a client at work (ntfs-3g, include/ntfs-3g/logfile.h)."""
    page = bytearray(4096)
    sectors = len(page) // 512
    struct.pack_into("<4sHHQIIHhh", page, 0, b"RSTR", 30, sectors + 1, 0, 4096, 4096, 48, 1, 1)
    # The restart area: one client, which is in use, and no flag of a clean volume.
    area = struct.pack(
        "<QHHHHIHHqIHHII", 1, 1, 0xFFFF, 0, 0, 67 - log_size.bit_length(), 48 + 160, 48, log_size, 0, 48, 64, 1, 0
    )
    client = struct.pack("<QQHHH6xI128s", 1, 1, 0xFFFF, 0xFFFF, 0, 8, "NTFS".encode("utf-16-le"))
    page[48 : 48 + len(area) + len(client)] = area + client
    # Each sector ends with the update number; what was there is kept in the header.
    struct.pack_into("<H", page, 30, 1)
    for sector in range(sectors):
        end = 512 * (sector + 1) - 2
        page[32 + 2 * sector : 34 + 2 * sector] = page[end : end + 2]
        struct.pack_into("<H", page, end, 1)
    return bytes(page)


def partitioned(path: str, data: str) -> list[str]:
    """Makes a disk whose partitions are ext4, XFS and NTFS, each with the file `data` in its root; returns their types."""
    # Debian's mkfs.xfs makes nothing smaller than 300 MB.
    parts = [("ext4", 32, _ext4_with), ("xfs", 304, _xfs_with), ("ntfs3", 24, _ntfs_with)]
    table = bytearray(512)
    table[510:] = b"\x55\xaa"
    first = 2048
    with open(path, "wb") as disk:
        for number, (_, size_mib, make) in enumerate(parts):
            part = f"{path}.part"
            with open(part, "wb") as file:
                file.truncate(size_mib * MIB)
            make(part, data)
            sectors = size_mib * MIB // 512
            struct.pack_into("<4xB3xII", table, 446 + 16 * number, 0x83, first, sectors)
            disk.truncate((first + sectors) * 512)
            _copy_sparse(part, disk, first * 512)
            os.unlink(part)
            first += sectors
        disk.seek(0)
        disk.write(table)
    return [kind for kind, _, _ in parts]


def with_large_sectors(path: str) -> None:
    """Makes a disk with sectors of 4096 bytes and an ext4 in a partition, which starts and ends elsewhere in units of 512
    bytes."""
    sector, first, size_mib = 4096, 256, 16
    part = f"{path}.part"
    with open(part, "wb") as file:
        file.truncate(size_mib * MIB)
    subprocess.run(["mkfs.ext4", "-q", "-b", str(sector), part], check=True)
    table = bytearray(512)
    table[510:] = b"\x55\xaa"
    struct.pack_into("<4xB3xII", table, 446, 0x83, first, size_mib * MIB // sector)
    with open(path, "wb") as disk:
        disk.write(table)
        disk.truncate(first * sector + size_mib * MIB)
        _copy_sparse(part, disk, first * sector)
    os.unlink(part)


def _copy_sparse(path: str, disk: BinaryIO, offset: int) -> None:
    with open(path, "rb") as file:
        for at in range(0, os.path.getsize(path), MIB):
            content = file.read(MIB)
            if content.strip(b"\0"):
                disk.seek(offset + at)
                disk.write(content)


def _ext4_with(path: str, data: str) -> None:
    subprocess.run(["mkfs.ext4", "-q", "-F", path], check=True)
    subprocess.run(["debugfs", "-w", "-R", f"write {data} data", path], check=True, capture_output=True)


def _xfs_with(path: str, data: str) -> None:
    # A prototype (mkfs.xfs(8)): the boot block, two numbers, the root with one file.
    prototype = f"{path}.proto"
    with open(prototype, "w", encoding="utf-8") as file:
        file.write(f"/\n0 0\nd--755 0 0\ndata ---644 0 0 {data}\n$\n")
    subprocess.run(["mkfs.xfs", "-q", "-p", prototype, path], check=True)


def _ntfs_with(path: str, data: str) -> None:
    subprocess.run(["mkntfs", "-q", "-f", "-F", path], check=True, capture_output=True)
    subprocess.run(["ntfscp", "-q", "-f", path, data, "data"], check=True, capture_output=True)


def lvm_member(path: str) -> str:
    """Makes a disk with the label of an LVM physical volume (LVM2's format-text label, sector 1)."""
    blank(path)
    label = bytearray(512)
    label[0:8], label[24:32] = b"LABELONE", b"LVM2 001"
    struct.pack_into("<Q", label, 8, 1)
    struct.pack_into("<I", label, 20, 32)
    with open(path, "r+b") as file:
        file.seek(512)
        file.write(label)
    return path


def md_member(path: str) -> str:
    """Makes a disk with an md superblock of version 1.2, 4 KiB from its start (Linux: include/uapi/linux/raid/md_p.h)."""
    blank(path)
    superblock = bytearray(256 + 2)
    struct.pack_into("<II", superblock, 0, 0xA92B4EFC, 1)
    superblock[16:32] = os.urandom(16)
    # A mirror of one, of 8 MiB, whose data begins at 1 MiB.
    struct.pack_into("<IIQIIQ", superblock, 72, 1, 0, 16384, 0, 1, 0)
    struct.pack_into("<QQQ", superblock, 128, 2048, 16384, 8)
    struct.pack_into("<I", superblock, 220, 1)
    words = sum(struct.unpack_from("<64I", superblock)) + struct.unpack_from("<H", superblock, 256)[0]
    struct.pack_into("<I", superblock, 216, (words & 0xFFFFFFFF) + (words >> 32))
    with open(path, "r+b") as file:
        file.seek(4096)
        file.write(superblock)
    return path
