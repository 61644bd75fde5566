"""Makes disks with arrays of Linux's software RAID, by mdadm and the kernel in a guest: what the tests of `cheetah-volume` compare with.

    PYTHONPATH=workshop python3 -m boot.tests.md_arrays

Each disk has a member in each of its partitions. A sector of an array repeats the name of the array and the number of the sector.
"""

from __future__ import annotations

import lzma
import re
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from boot import initrd, modules
from boot.cpio import Archive
from boot.packages import Packages
from boot.tests.shell import PACKAGES, _libraries

ROOT = Path(__file__).resolve().parents[3]
DISKS = ROOT / "crates" / "evidence" / "volume" / "tests" / "arrays"
MODULES = ("virtio_blk", "crc32c_generic", "md-mod", "raid0", "raid1", "raid10", "raid456")
KIB = 1024
START = 64 * KIB
CONTENT_BYTES = 2 << 20
PATIENCE_S = 300

INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /tmp /run /sbin /usr/bin /usr/sbin
/bin/busybox --install -s
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /run
for module in {modules}; do modprobe $module; done
set -e
fill() {{
    head -c $(($(cat /sys/block/$1/size) * 512)) /content/$2 >/dev/$1
    sync
    mdadm --wait /dev/$1 || true
}}
sum() {{ echo 3 >/proc/sys/vm/drop_caches; echo "sum $2 $(cat /sys/block/$1/size) $(md5sum </dev/$1)"; }}
{commands}
echo "all are made"
# Without telling md, which would close the arrays that are to stay open.
echo b >/proc/sysrq-trigger
"""


class Disk(NamedTuple):
    """A disk, and the options with which mdadm makes its array."""

    name: str
    version: str
    level: str
    options: str
    members: tuple[int, ...]
    """The sizes of the partitions in KiB."""
    then: str = ""
    """What is done to the array `$md` with the partitions `$disk`N before it is closed."""
    is_closed: bool = True


EVEN = (512,) * 3
LONG = (512,) * 4
SOME = "--chunk=16 --size=192"
DATA = "--data-offset=64"
BEHIND = "mdadm $md --fail ${disk}2 --remove ${disk}2; fill ${md#/dev/} NAME"
OPEN = "echo 3600 >/sys/block/${md#/dev/}/md/safe_mode_delay; fill ${md#/dev/} NAME"
ARRAYS = (
    Disk("zero-even", "1.1", "0", f"--chunk=16 {DATA}", (256, 256)),
    Disk("zero-uneven", "1.2", "0", f"--chunk=16 {DATA}", (256, 448, 320)),
    Disk("one-old", "0.90", "1", "--size=192", (512, 512)),
    Disk("one-end", "1.0", "1", f"--size=192 {DATA}", (512, 512)),
    Disk("one-behind", "1.2", "1", f"--size=192 {DATA}", (512, 512), BEHIND),
    Disk("one-open", "1.2", "1", f"--size=192 {DATA}", (512, 512), OPEN, is_closed=False),
    Disk("four", "1.1", "4", f"{SOME} {DATA}", EVEN),
    Disk("five-old", "0.90", "5", SOME, EVEN),
    *(
        Disk(f"five-{layout}", "1.2", "5", f"{SOME} {DATA} --layout={layout}", EVEN)
        for layout in ("la", "ra", "ls", "rs", "parity-first", "parity-last")
    ),
    Disk("five-behind", "1.2", "5", f"{SOME} {DATA}", EVEN, BEHIND),
    Disk("five-open", "1.2", "5", f"{SOME} {DATA}", EVEN, OPEN, is_closed=False),
    *(
        Disk(f"six-{layout}", "1.2", "6", f"{SOME} {DATA} --layout={layout}", LONG)
        for layout in ("la", "ra", "ls", "rs", "parity-first", "parity-last")
    ),
    Disk("ten-near", "1.2", "10", f"{SOME} {DATA} --layout=n2", EVEN),
    Disk("ten-three", "1.2", "10", f"{SOME} {DATA} --layout=n3", LONG),
    Disk("ten-far", "1.2", "10", f"{SOME} {DATA} --layout=f2", EVEN),
)


def content(name: str, length: int) -> bytes:
    """Returns the content of an array."""
    lines = (f"{name} {sector:06}\n".encode() for sector in range(length // 512))
    return b"".join((line * (512 // len(line) + 1))[:512] for line in lines)


def partitioned(disk: Disk) -> bytes:
    """Returns an empty disk with a table of partitions."""
    table, at = bytearray(START), START
    for number, size in enumerate(disk.members):
        struct.pack_into("<B3xB3xII", table, 446 + 16 * number, 0, 0xFD, at // 512, size * KIB // 512)
        at += size * KIB
    table[510:512] = b"\x55\xaa"
    return bytes(table).ljust(at, b"\0")


def commands(number: int, disk: Disk) -> str:
    """Returns the commands that make an array."""
    device, md = f"/dev/vd{chr(ord('a') + number)}", f"md{number}"
    partitions = " ".join(f"{device}{part + 1}" for part in range(len(disk.members)))
    named = "" if disk.version == "0.90" else f"--homehost=lab --name={disk.name}"
    made = (
        f"mdadm --create /dev/{md} --run --force --metadata={disk.version} --level={disk.level} {disk.options} {named}"
        f" --raid-devices={len(disk.members)}"
    )
    if disk.level not in ("0",):
        made += " --bitmap=none"
    lines = [f"md=/dev/{md} disk={device}", f"{made} {partitions} </dev/null", f"mdadm --wait /dev/{md} || true"]
    lines += [
        f"fill {md} {'old' if disk.then else disk.name}",
        disk.then.replace("NAME", disk.name),
        f"sum {md} {disk.name}",
    ]
    lines += [f"mdadm --stop /dev/{md}"] if disk.is_closed else []
    return "\n".join(line for line in lines if line)


def make(scratch: Path) -> str:
    """Makes the disks in a directory; returns what the guest said."""
    packages = Packages(PACKAGES)
    kernel, mdadm = packages.kernel(), f"{packages.unpack('mdadm')}/sbin/mdadm"
    archive = Archive()
    archive.copy("bin/busybox", initrd.BUSYBOX)
    archive.copy("sbin/mdadm", mdadm)
    for library in _libraries(mdadm):
        archive.copy(library.lstrip("/"), library)
    for disk in (*ARRAYS, Disk("old", "", "", "", ())):
        archive.file(f"content/{disk.name}", content(disk.name, CONTENT_BYTES), 0o644)
    modules.add(archive, kernel, modules.with_needed(kernel, MODULES))
    script = "\n".join(commands(number, disk) for number, disk in enumerate(ARRAYS))
    archive.file("init", INIT.format(modules=" ".join(MODULES), commands=script).encode())
    (scratch / "initrd").write_bytes(archive.compressed(3))
    argv = ["qemu-system-x86_64", "-accel", "tcg", "-m", "1024", "-nographic", "-no-reboot"]
    argv += ["-nic", "none", "-vga", "none"]
    argv += [
        "-kernel",
        kernel.image,
        "-initrd",
        str(scratch / "initrd"),
        "-append",
        "console=ttyS0 panic=-1 no_timer_check",
    ]
    for disk in ARRAYS:
        (scratch / disk.name).write_bytes(partitioned(disk))
        argv += ["-drive", f"file={scratch / disk.name},format=raw,if=virtio,cache=writethrough"]
    with (scratch / "console").open("wb") as console:
        subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=console, timeout=PATIENCE_S, check=True)
    said = (scratch / "console").read_text(errors="replace")
    assert "all are made" in said, said[-4000:]
    return said


def main() -> None:
    """Makes the disks, and keeps them where the tests look for them."""
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        said = make(scratch)
        print("\n".join(re.findall(r"^sum .*", said, re.MULTILINE)))
        shutil.rmtree(DISKS, ignore_errors=True)
        DISKS.mkdir(parents=True)
        for disk in ARRAYS:
            packed = lzma.compress((scratch / disk.name).read_bytes(), preset=9)
            (DISKS / f"{disk.name}.raw.xz").write_bytes(packed)
            print(f"{disk.name}: {len(packed)} bytes")


if __name__ == "__main__":
    main()
