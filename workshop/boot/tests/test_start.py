"""The quickest ways to start the image: the kernel without a boot loader, and a disc. These tests are part of `make test`."""

from __future__ import annotations

from pathlib import Path

from boot import menu
from boot.tests import disks, guest
from boot.tests.requests import assert_untouched, own_image, with_disks

STARTED = "Disks visible: 0"


def disc(path: str) -> list[str]:
    """Returns QEMU's options for a disc in the drive."""
    return [
        "-drive",
        f"if=none,id=disc,media=cdrom,readonly=on,file={path}",
        "-device",
        "ide-cd,drive=disc,bootindex=0",
    ]


def test_a_machine_joins_by_itself_and_no_request_reaches_its_disks(
    live: str, room: guest.Room, tmp_path: Path
) -> None:
    paths = [disks.blank(str(tmp_path / f"disk{number}")) for number in range(5)]
    boot = guest.direct(live, menu.LEND, own_image(room, tmp_path))
    machine, at_start = with_disks(room, tmp_path, menu.LEND, boot, paths)
    for shown in ("Disks visible: 0", "joined room lab", "lends [0-9.]+GiB"):
        machine.wait_for(shown)
    assert_untouched(at_start, machine.disk_requests())
    machine.kill()


def test_a_disc_starts_a_machine_with_a_bios(live: str, room: guest.Room, tmp_path: Path) -> None:
    machine = guest.Guest(room, str(tmp_path), "bios", 1, disc(f"{live}/cheetah.iso"))
    machine.wait_for(STARTED)
    machine.kill()
