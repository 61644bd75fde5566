"""The ISO image: a disc, or a USB stick when copied to one; for BIOS and UEFI firmware, with and without Secure Boot."""

from __future__ import annotations

import hashlib
import os
import time

from boot import menu
from boot.packages import Packages
from boot.run import run

# Room in the EFI system partition for its tables, beside the files.
ESP_SPARE_BYTES = 96 << 10
# The GRUB modules that read a disc or a stick by the BIOS, and start Linux.
BIOS_MODULES = (
    "biosdisk iso9660 part_msdos part_gpt fat normal configfile linux search search_fs_uuid echo test serial terminal"
)


def build(out: str, tree: str, packages: Packages, epoch_s: int) -> None:
    """Writes the image `out`. `tree` has the files of the disc, below `boot/`, and gets those of the boot loaders."""
    uuid = _uuid(os.path.join(tree, "boot"), epoch_s)
    env = {"SOURCE_DATE_EPOCH": str(epoch_s), "TZ": "UTC"}
    config = menu.config(
        [f"search --no-floppy --set=root --fs-uuid {uuid}"], "/boot", os.listdir(os.path.join(tree, "boot"))
    )
    grub_dir = os.path.join(tree, "boot", "grub")
    os.makedirs(grub_dir)
    config_path = os.path.join(grub_dir, "grub.cfg")
    with open(config_path, "w", encoding="ascii") as file:
        file.write(config)
    grub = os.path.join(packages.unpack("grub-pc-bin"), "usr", "lib", "grub", "i386-pc")
    _bios(os.path.join(grub_dir, "bios.img"), grub, uuid, f"{out}.early")
    esp = f"{out}.esp"
    _esp(esp, config_path, packages, env)
    # Times in the tree become times on the disc.
    for dir, names, files in os.walk(tree):
        for name in (*names, *files):
            os.utime(os.path.join(dir, name), (epoch_s, epoch_s))
    os.utime(tree, (epoch_s, epoch_s))
    argv = [
        "xorriso",
        "-as",
        "mkisofs",
        "-quiet",
        "-r",
        "-V",
        "CHEETAH",
        f"--modification-date={uuid.replace('-', '')}",
        "-o",
        out,
    ]
    argv += ["-b", "boot/grub/bios.img", "-no-emul-boot", "-boot-load-size", "4", "-boot-info-table"]
    argv += ["--grub2-boot-info", "--grub2-mbr", os.path.join(grub, "boot_hybrid.img"), "-partition_offset", "16"]
    argv += ["-eltorito-alt-boot", "-e", "--interval:appended_partition_2:all::", "-no-emul-boot"]
    argv += ["-append_partition", "2", "0xef", esp, "-appended_part_as_gpt", tree]
    run(argv, env)
    os.remove(esp)


def _uuid(files: str, epoch_s: int) -> str:
    """Returns the id by which GRUB finds the medium. On an ISO image, the id is a time: the day of the build, and a time of
    day derived from the content, so that two media of the same day differ."""
    digest = hashlib.sha256()
    for name in sorted(os.listdir(files)):
        with open(os.path.join(files, name), "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    number = int.from_bytes(digest.digest(), "big")
    parts = []
    for count in (24, 60, 60, 100):
        number, part = divmod(number, count)
        parts.append(f"{part:02}")
    return "-".join((time.strftime("%Y-%m-%d", time.gmtime(epoch_s)), *parts))


def _bios(path: str, grub: str, uuid: str, early: str) -> None:
    with open(early, "w", encoding="ascii") as file:
        file.write(f"search --no-floppy --set=root --fs-uuid {uuid}\nset prefix=($root)/boot/grub\n")
    argv = ["grub-mkimage", "-O", "i386-pc-eltorito", "-d", grub, "-p", "/boot/grub", "-c", early, "-o", path]
    run([*argv, *BIOS_MODULES.split()])
    os.remove(early)


def _esp(path: str, config: str, packages: Packages, env: dict[str, str]) -> None:
    """Writes the EFI system partition: Debian's shim, which Microsoft signed, and the GRUB that Debian signed for discs."""
    shim = os.path.join(packages.unpack("shim-signed"), "usr", "lib", "shim", "shimx64.efi.signed")
    grub = os.path.join(packages.unpack("grub-efi-amd64-signed"), "usr", "lib", "grub", "x86_64-efi-signed")
    loader = os.path.join(grub, "gcdx64.efi.signed")
    with open(path, "wb") as file:
        content = sum(os.path.getsize(name) for name in (shim, loader, config))
        file.truncate(-(-(content + ESP_SPARE_BYTES) // (32 << 10)) * (32 << 10))
    run(["mformat", "-i", path, "-N", "00c4ee7a", "-v", "CHEETAH", "::"], env)
    run(["mmd", "-i", path, "::/EFI", "::/EFI/BOOT", "::/boot", "::/boot/grub"], env)
    run(["mcopy", "-i", path, shim, "::/EFI/BOOT/BOOTX64.EFI"], env)
    run(["mcopy", "-i", path, loader, "::/EFI/BOOT/grubx64.efi"], env)
    run(["mcopy", "-i", path, config, "::/boot/grub/grub.cfg"], env)
