"""The tree for booting over a network: what a TFTP or HTTP server serves to BIOS and UEFI firmware."""

from __future__ import annotations

import os
import shutil

from boot import menu
from boot.packages import Packages
from boot.run import run

BIOS_MODULES = "pxe tftp http net normal configfile linux echo test serial terminal"
# Uses HTTP if the server of the boot loader offers it: it is many times as fast as TFTP.
FASTEST = ("if [ -s (http,$net_default_server)/vmlinuz ]; then", "    set root=http,$net_default_server", "fi")


def build(tree: str, files: str, packages: Packages) -> None:
    """Fills `tree` with the boot loaders, the menu, and the kernel and archives of the directory `files`."""
    os.makedirs(os.path.join(tree, "grub"))
    for name in os.listdir(files):
        if name != "grub":
            shutil.copyfile(os.path.join(files, name), os.path.join(tree, name))
    with open(os.path.join(tree, "grub", "grub.cfg"), "w", encoding="ascii") as file:
        file.write(menu.config(FASTEST, "", os.listdir(tree)))
    shim = os.path.join(packages.unpack("shim-signed"), "usr", "lib", "shim", "shimx64.efi.signed")
    shutil.copyfile(shim, os.path.join(tree, "shimx64.efi"))
    signed = os.path.join(packages.unpack("grub-efi-amd64-signed"), "usr", "lib", "grub", "x86_64-efi-signed")
    # Shim asks the server for this name.
    shutil.copyfile(os.path.join(signed, "grubnetx64.efi.signed"), os.path.join(tree, "grubx64.efi"))
    grub = os.path.join(packages.unpack("grub-pc-bin"), "usr", "lib", "grub", "i386-pc")
    argv = ["grub-mkimage", "-O", "i386-pc-pxe", "-d", grub, "-p", "/grub", "-o", os.path.join(tree, "bios.0")]
    run([*argv, *BIOS_MODULES.split()])
