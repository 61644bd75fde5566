"""Firmware for network adapters, from Debian's `non-free-firmware`, in an archive of its own."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from boot import modules
from boot.cpio import Archive
from boot.packages import Kernel, Packages

# The packages with firmware for wired network adapters.
PACKAGES = (
    "firmware-bnx2",
    "firmware-bnx2x",
    "firmware-cavium",
    "firmware-misc-nonfree",
    "firmware-netronome",
    "firmware-qlogic",
    "firmware-realtek",
)
FOLDERS = ("lib/firmware", "usr/lib/firmware")


def archive(kernel: Kernel, chosen: Sequence[str], packages: Packages, level: int) -> bytes | None:
    """Returns an archive of the firmware that these modules name and apt has, with the drivers that need it; `None` if apt
    has none."""
    roots = [packages.unpack(name) for name in PACKAGES if packages.version(name)]
    wanted = sorted({name for module in chosen for name in named(kernel.module(module))})
    made = collect(wanted, roots)
    if not made:
        return None
    for name in modules.with_firmware(chosen):
        made.file(modules.path(kernel, name), kernel.module(name), 0o644)
    return made.compressed(level)


def collect(wanted: Sequence[str], roots: Sequence[str]) -> Archive | None:
    """Returns an archive of those named files that one of the unpacked packages has; `None` if there are none."""
    made = Archive()
    for name in wanted:
        places = (os.path.join(root, folder, name) for root in roots for folder in FOLDERS)
        found = next((path for path in places if os.path.isfile(path)), None)
        if found:
            made.copy(f"lib/firmware/{name}", found, 0o644)
    return made if made.names() else None


def named(module: bytes) -> list[str]:
    """Returns the names of the firmware that a module asks for: entries of its section `.modinfo`."""
    names = (found.decode("ascii", "replace") for found in re.findall(rb"\0firmware=([^\0]{1,200})", module))
    return [name for name in names if not name.startswith("/") and ".." not in name.split("/")]
