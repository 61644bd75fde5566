"""Disks for guests: every kind of adapter, and content that a careless system would change."""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import subprocess
from collections.abc import Sequence

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
    """Makes an NTFS volume marked dirty, with a log file that is not reset."""
    with open(path, "wb") as file:
        file.truncate(16 * MIB)
    subprocess.run(
        ["mkntfs", "-q", "-f", "-F", "-s", "512", "-p", "0", "-H", "16", "-S", "63", path],
        check=True,
        capture_output=True,
    )
    if shutil.which("ntfsinfo"):
        subprocess.run(["ntfsfix", "-n", path], check=False, capture_output=True)
    # $Volume's flags: the dirty bit. The record is the fourth of the MFT, and its attribute $VOLUME_INFORMATION is resident.
    with open(path, "r+b") as file:
        boot = file.read(512)
        cluster = struct.unpack_from("<H", boot, 11)[0] * boot[13]
        at = struct.unpack_from("<Q", boot, 48)[0] * cluster + 3 * 1024
        file.seek(at)
        record = bytearray(file.read(1024))
        attribute = struct.unpack_from("<H", record, 20)[0]
        while struct.unpack_from("<I", record, attribute)[0] != 0x70:
            attribute += struct.unpack_from("<I", record, attribute + 4)[0]
        flags = attribute + struct.unpack_from("<H", record, attribute + 20)[0] + 10
        record[flags] |= 1
        file.seek(at)
        file.write(record)
    return path


def lvm_member(path: str) -> str:
    """Makes a disk that bears the label of an LVM physical volume (LVM2's format-text label, sector 1)."""
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
    """Makes a disk that bears an md superblock of version 1.2, 4 KiB from its start (Linux, include/uapi/linux/raid/md_p.h)."""
    blank(path)
    superblock = bytearray(256)
    struct.pack_into("<II", superblock, 0, 0xA92B4EFC, 1)
    superblock[16:32] = os.urandom(16)
    struct.pack_into("<I", superblock, 72, 1)
    struct.pack_into("<Q", superblock, 144, 8)
    with open(path, "r+b") as file:
        file.seek(4096)
        file.write(superblock)
    return path
