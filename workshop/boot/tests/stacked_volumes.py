"""Makes a disk with volumes one in another, by mdadm, cryptsetup, LVM2 and the kernel in a guest: what the tests of the command line
compare with.

    PYTHONPATH=workshop python3 -m boot.tests.stacked_volumes

A RAID 5 lies on three partitions, and has a table with one partition; in that is a volume of LUKS, and in this a volume group with two
logical volumes. A sector of a logical volume repeats its name and the number of the sector.
"""

from __future__ import annotations

import lzma
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

from boot import initrd, modules
from boot.cpio import Archive
from boot.packages import Packages
from boot.tests.md_arrays import Disk, content, partitioned
from boot.tests.shell import PACKAGES, _libraries

ROOT = Path(__file__).resolve().parents[3]
DISKS = ROOT / "crates" / "desk" / "cheetah" / "tests" / "disks"
MODULES = ("virtio_blk", "crc32c_generic", "md-mod", "raid456", "dm-mod", "dm-crypt", "algif_skcipher", "algif_hash")
KIB = 1024
DISK = Disk("deep", "1.2", "5", "", (512,) * 3)
PASSWORD = "password"
PARTITION_AT = 64 * KIB
PATIENCE_S = 300
VOLUMES = {"root": 256 * KIB, "home": 128 * KIB}
CONFIG = (
    "devices{pv_min_size=512 use_devicesfile=0 obtain_device_list_from_udev=0} activation{udev_sync=0 udev_rules=0 verify_udev_operations=0 monitoring=0} "
    "backup{backup=0 archive=0} global{use_lvmpolld=0}"
)

INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /tmp /run/lock/lvm /sbin /usr/bin /usr/sbin
/bin/busybox --install -s
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
for module in {modules}; do modprobe $module; done
export DM_DISABLE_UDEV=1 LVM_SUPPRESS_FD_WARNINGS=1
set -ex
lvm() {{ verb=$1; shift; /sbin/lvm $verb --config '{config}' "$@"; }}
mdadm --create /dev/md0 --run --force --metadata=1.2 --level=5 --chunk=16 --data-offset=64 --homehost=lab --name=deep \
    --bitmap=none --raid-devices=3 /dev/vda1 /dev/vda2 /dev/vda3 </dev/null
mdadm --wait /dev/md0 || true
cat /content/table >/dev/md0
sync
blockdev --rereadpt /dev/md0
sleep 1
cryptsetup luksFormat --batch-mode --type luks2 --cipher aes-ecb --key-size 128 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 \
    --luks2-metadata-size 16k --luks2-keyslots-size 128k --offset 320 --key-file /content/key /dev/md0p1
cryptsetup open --key-file /content/key /dev/md0p1 inner
lvm pvcreate -ff -y --metadatasize 64k --dataalignment 64k /dev/mapper/inner
lvm vgcreate -s 64k vg-deep /dev/mapper/inner
{volumes}
sync
lvm vgchange -an vg-deep
cryptsetup close inner
mdadm --stop /dev/md0
echo "all are made"
echo b >/proc/sysrq-trigger
"""


def table(array_bytes: int) -> bytes:
    """Returns the table of the array, with one partition."""
    sectors = (array_bytes - PARTITION_AT) // 512
    entry = struct.pack("<B3xB3xII", 0, 0x83, PARTITION_AT // 512, sectors)
    return bytes(446) + entry.ljust(64, b"\0") + b"\x55\xaa"


def volume(name: str, size: int) -> str:
    """Returns the commands that make a logical volume."""
    made = f"lvm lvcreate -y -Zn -Wn -l {size // (64 * KIB)} -n {name} vg-deep"
    return f"{made}\ncat /content/{name} >/dev/mapper/vg--deep-{name}"


def make(scratch: Path) -> None:
    """Makes the disk in a directory."""
    packages = Packages(PACKAGES)
    kernel = packages.kernel()
    programs = {"mdadm": f"{packages.unpack('mdadm')}/sbin/mdadm"}
    programs |= {name: f"/usr/sbin/{name}" for name in ("cryptsetup", "lvm")}
    archive = Archive()
    archive.copy("bin/busybox", initrd.BUSYBOX)
    for name, path in programs.items():
        archive.copy(f"sbin/{name}", path)
        for library in _libraries(path):
            archive.copy(library.lstrip("/"), library)
    for name, size in VOLUMES.items():
        archive.file(f"content/{name}", content(name, size), 0o644)
    # What mdadm rounds to chunks.
    archive.file("content/table", table(2 * (DISK.members[0] - 64) * KIB), 0o644)
    archive.file("content/key", PASSWORD.encode(), 0o600)
    modules.add(archive, kernel, modules.with_needed(kernel, MODULES))
    volumes = "\n".join(volume(name, size) for name, size in VOLUMES.items())
    archive.file("init", INIT.format(modules=" ".join(MODULES), config=CONFIG, volumes=volumes).encode())
    (scratch / "initrd").write_bytes(archive.compressed(3))
    (scratch / DISK.name).write_bytes(partitioned(DISK))
    argv = [
        "qemu-system-x86_64",
        "-accel",
        "tcg",
        "-m",
        "1024",
        "-nographic",
        "-no-reboot",
        "-nic",
        "none",
        "-vga",
        "none",
    ]
    argv += ["-kernel", kernel.image, "-initrd", str(scratch / "initrd")]
    argv += ["-append", "console=ttyS0 panic=-1 no_timer_check"]
    argv += ["-drive", f"file={scratch / DISK.name},format=raw,if=virtio,cache=writethrough"]
    with (scratch / "console").open("wb") as console:
        subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=console, timeout=PATIENCE_S, check=True)
    said = (scratch / "console").read_text(errors="replace")
    assert "\nall are made" in said, said[-4000:]


def main() -> None:
    """Makes the disk, and keeps it where the tests look for it."""
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        make(scratch)
        shutil.rmtree(DISKS, ignore_errors=True)
        DISKS.mkdir(parents=True)
        packed = lzma.compress((scratch / DISK.name).read_bytes(), preset=9)
        (DISKS / f"{DISK.name}.raw.xz").write_bytes(packed)
        print(f"{DISK.name}: {len(packed)} bytes")


if __name__ == "__main__":
    main()
