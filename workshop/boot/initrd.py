"""The archives that the kernel unpacks into its root file system, one behind the other."""

from __future__ import annotations

import os
import shutil
import tempfile

from boot import modules
from boot.cpio import Archive
from boot.error import BuildError, MissingError
from boot.packages import Kernel
from boot.run import run

HERE = os.path.dirname(os.path.abspath(__file__))
BUSYBOX = "/bin/busybox"
# What `cheetah room boot-image` replaces in an image that is built already (crates/desk/cheetah/src/commands/room/boot_image.rs).
LAB_BYTES = 64 << 10
LAB_MARK = b"cheetah: the archive of a laboratory\n"


def lend(kernel: Kernel, cheetah: str, level: int) -> bytes:
    """Returns the archive of both entries: busybox, `cheetah`, `/init`, and the modules that lending needs."""
    if not os.path.exists(BUSYBOX):
        raise MissingError(f"there is no {BUSYBOX}: run scripts/install-deps --live")
    made = Archive()
    for name in ("bin", "dev", "proc", "root", "run", "sys", "tmp", "etc/cheetah"):
        made.directory(name)
    made.copy("bin/busybox", BUSYBOX)
    made.file("bin/cheetah", stripped(cheetah))
    _add_tree(made, os.path.join(HERE, "rootfs"))
    chosen = modules.lend(kernel)
    elsewhere = modules.with_firmware(chosen)
    modules.add(made, kernel, sorted(set(chosen) - set(elsewhere)), present=elsewhere)
    return made.compressed(level)


def serve(kernel: Kernel, level: int) -> bytes:
    """Returns the archive that the serving entry adds: storage drivers, and the file that makes `/init` serve."""
    made = Archive()
    made.file("etc/serve", b"", 0o644)
    modules.add(made, kernel, modules.serve(kernel), present=modules.lend(kernel))
    return made.compressed(level)


def lab() -> bytes:
    """Returns the place for the laboratory's own archive, with its mark alone. Its length is fixed, so that it can be replaced
    in a finished image."""
    made = Archive()
    made.file("etc/cheetah/mark", LAB_MARK, 0o644)
    content = made.content()
    return content + b"\0" * (LAB_BYTES - len(content))


def _add_tree(archive: Archive, root: str) -> None:
    for dir, _, files in os.walk(root):
        for name in files:
            path = os.path.join(dir, name)
            archive.copy(os.path.relpath(path, root), path, 0o755 if os.access(path, os.X_OK) else 0o644)


def stripped(cheetah: str) -> bytes:
    """Returns the static binary without its symbols."""
    if not os.path.exists(cheetah):
        raise BuildError(f"there is no {cheetah}: run make static")
    with tempfile.TemporaryDirectory() as scratch:
        copy = shutil.copy(cheetah, scratch)
        run(["strip", "--strip-all", copy])
        with open(copy, "rb") as file:
            return file.read()
