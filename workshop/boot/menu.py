"""GRUB's menu, the same on every medium, and the kernel's command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Entry(NamedTuple):
    """One way to start the machine."""

    name: str
    title: str
    archives: tuple[str, ...]
    # Options for the kernel.
    options: str

    def command_line(self) -> str:
        """Returns the kernel's command line."""
        return f"console=ttyS0,115200 console=tty0 quiet loglevel=1 panic=30 {self.options}".rstrip()


LEND = Entry(
    "lend",
    "Lend this machine's memory (its disks stay invisible)",
    ("lend.img",),
    # Buffers for devices that cannot reach all memory: 16 MiB, not 64. Only network adapters use them here.
    "swiotlb=8192",
)
SERVE = Entry("serve", "Serve this machine's disks, read-only", ("lend.img", "serve.img"), "")
ENTRIES = (LEND, SERVE)
# Archives after those of each entry: firmware, if the image was built with it, and the laboratory's own.
LAST = ("firmware.img", "lab.img")


def config(find_root: Sequence[str], folder: str, present: Sequence[str]) -> str:
    """Returns `grub.cfg`. `find_root` are the commands that find the medium, and `folder` holds the kernel there, with the
    archives that are `present`."""
    lines = [
        "serial --unit=0 --speed=115200",
        "terminal_input console serial",
        "terminal_output console serial",
        "set timeout=5",
        "set default=0",
        *find_root,
    ]
    for entry in ENTRIES:
        archives = [name for name in (*entry.archives, *LAST) if name in present]
        lines += [
            f'menuentry "{entry.title}" {{',
            f"    linux {folder}/vmlinuz {entry.command_line()}",
            f"    initrd {' '.join(f'{folder}/{name}' for name in archives)}",
            "}",
        ]
    return "\n".join(lines) + "\n"
