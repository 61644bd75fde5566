"""Guests in a room, and the requests that reach their disks."""

from __future__ import annotations

from pathlib import Path

from boot import menu
from boot.tests import disks, guest
from boot.tests.conftest import CHEETAH

KERNEL_STARTED = "Linux version"


def address(machine: guest.Guest) -> str:
    """Returns the address that a machine shows on its screen."""
    return machine.wait_for(r"This machine: \S+ +(10\.77\.0\.\d+)/")[1]


def own_image(room: guest.Room, dir: Path) -> str:
    """Makes a room, and the archive that makes machines join it; returns its path."""
    path = str(dir / "lab.img")
    room.run(CHEETAH, "room", "init", "lab")
    room.serve()
    room.run(CHEETAH, "room", "boot-image", "--serve", "--address", guest.HOST_ADDRESS, "--out", path)
    return path


def with_disks(
    room: guest.Room, dir: Path, entry: menu.Entry, boot: list[str], paths: list[str]
) -> tuple[guest.Guest, guest.Requests]:
    """Starts a machine with five disks; returns it, and the requests to its disks up to the kernel's start."""
    machine = guest.Guest(room, str(dir), f"{entry.name}-disks", 1, boot, disks.every_adapter(paths))
    machine.wait_for(KERNEL_STARTED)
    return machine, machine.disk_requests()


def assert_untouched(at_start: guest.Requests, at_end: guest.Requests) -> None:
    """Asserts that no request reached a disk since the kernel's start, and no write before it."""
    assert len(at_start) >= 5 and at_end == at_start
    assert all(writes == flushes == 0 for _, writes, flushes in at_start.values())
