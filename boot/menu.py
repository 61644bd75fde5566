"""GRUB's menu, the same on every medium."""

from __future__ import annotations

CONSOLES = "console=ttyS0,115200 console=tty0"
ENTRIES = (
    ("Lend this machine's memory (its disks stay invisible)", ("lend.img", "lab.img"), ""),
    ("Serve this machine's disks, read-only", ("lend.img", "serve.img", "lab.img"), ""),
)


def config(find_root: str, folder: str) -> str:
    """Returns `grub.cfg`. `find_root` is the command that finds the medium, and `folder` holds the kernel there."""
    lines = [
        "serial --unit=0 --speed=115200",
        "terminal_input console serial",
        "terminal_output console serial",
        "set timeout=5",
        "set default=0",
        *([find_root] if find_root else []),
    ]
    for title, archives, more in ENTRIES:
        lines += [
            f'menuentry "{title}" {{',
            f"    linux {folder}/vmlinuz {CONSOLES} quiet loglevel=1 panic=30{more}",
            f"    initrd {' '.join(f'{folder}/{name}' for name in archives)}",
            "}",
        ]
    return "\n".join(lines) + "\n"
