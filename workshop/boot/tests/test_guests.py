"""The image in emulated machines: what they lend, what they serve, and that they leave their disks alone."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from boot import menu
from boot.tests import disks, guest
from boot.tests.conftest import CHEETAH
from boot.tests.requests import KERNEL_STARTED, address, assert_untouched, own_image, with_disks


def test_two_machines_join_by_themselves_and_their_drive_survives_one_of_them(
    live: str, room: guest.Room, tmp_path: Path
) -> None:
    paths = [disks.blank(str(tmp_path / f"disk{number}")) for number in range(5)]
    before = [disks.sha256(path) for path in paths]
    boot = guest.direct(live, menu.LEND, own_image(room, tmp_path))
    machine, at_start = with_disks(room, tmp_path, menu.LEND, boot, paths)
    other = guest.Guest(room, str(tmp_path), "plain", 2, boot)
    image = disks.blank(str(tmp_path / "image.raw"))
    drive = str(tmp_path / "case.drive")

    room.run(CHEETAH, "create", drive, "--wait", "2", "--listen", f"{guest.HOST_ADDRESS}:10811", "--from", image)

    here = address(machine)
    status = room.status_of(here)
    assert status["disks_visible"] == 0 and status["memory"]["locked"]
    assert status["memory"]["lent_bytes"] >= guest.MEMORY_MIB * 0.9 * disks.MIB
    assert status["scan"]["threads"] == 1, "a thread for each processor of the guest"
    for shown in ("Disks visible: 0", "joined room lab", "https://"):
        machine.wait_for(shown)
    room.run(CHEETAH, "verify", drive)
    # A machine that was slow for a moment may have missed writes.
    room.run(CHEETAH, "repair", drive)
    # The other machine restarts without its content; the drive survives that.
    other.monitor("system_reset")
    room.run(CHEETAH, "verify", drive)
    guest.wait_for(
        lambda: re.search(f"(?s){KERNEL_STARTED}.*{KERNEL_STARTED}.* lends ", other.console()), "lends again"
    )
    room.run(CHEETAH, "verify", drive)
    # The machine that restarted cannot say that it wiped its memory, hence the failure.
    assert room.run(CHEETAH, "destroy", drive, "--force", check=False).returncode == 1 and not os.path.exists(drive)
    other.kill()
    machine.press("q")
    guest.wait_for(machine.requests_or_end, "the machine's end")
    assert "verified zero" in machine.console()
    assert_untouched(at_start, machine.last_requests)
    assert [disks.sha256(path) for path in paths] == before


def test_the_power_button_wipes_the_memory_and_shows_the_receipt(live: str, room: guest.Room, tmp_path: Path) -> None:
    machine = guest.Guest(room, str(tmp_path), "button", 1, guest.direct(live, menu.LEND, own_image(room, tmp_path)))
    machine.wait_for("lends [0-9.]+GiB")
    machine.monitor("system_powerdown")
    guest.wait_for(lambda: machine.ended, "the machine's end")
    assert re.search("node .*: (wiped|nothing to wipe)", machine.console())


def test_a_machine_without_a_room_shows_the_code_that_lets_it_in(live: str, room: guest.Room, tmp_path: Path) -> None:
    room.run(CHEETAH, "room", "init", "lab")
    room.serve()
    machine = guest.Guest(room, str(tmp_path), "stranger", 1, guest.direct(live, menu.LEND))
    code = machine.wait_for(r"code (\d{4}-\d{4})")[1]
    room.run(CHEETAH, "room", "approve", code, "--role", "node")
    drive = str(tmp_path / "case.drive")
    room.run(CHEETAH, "create", drive, "--size", "64MiB", "--wait", "1", "--listen", f"{guest.HOST_ADDRESS}:10811")
    room.run(CHEETAH, "destroy", drive)
    machine.kill()


def test_a_served_machine_gives_identical_images_and_its_disks_stay_as_they_were(
    live: str, room: guest.Room, tmp_path: Path
) -> None:
    kinds = (disks.dirty_ext4, disks.pending_ntfs, disks.lvm_member, disks.md_member, disks.blank)
    paths = [make(str(tmp_path / make.__name__)) for make in kinds]
    before = [disks.sha256(path) for path in paths]
    boot = guest.direct(live, menu.SERVE, own_image(room, tmp_path))
    machine, at_start = with_disks(room, tmp_path, menu.SERVE, boot, paths)
    machine.wait_for("Disks visible: 5")
    machine.wait_for("Read-only: 5 of 5")
    here = address(machine)

    images = set()
    for number in range(5):
        # The agents connect to the examiner; each has a port of its own there. They also listen.
        image = str(tmp_path / f"{number}.raw")
        room.run(CHEETAH, "acquire", "--listen", f"{guest.HOST_ADDRESS}:{10821 + number}", image)
        images.add(disks.sha256(image))
        os.remove(image)
    assert images == set(before)
    # The screen shows the ports of each disk.
    name = machine.wait_for(rf"\n(\w+) +\S+iB +{guest.HOST_ADDRESS}:10821 +10809 ")[1]
    room.run(CHEETAH, "acquire", f"nbd://{here}:10809/{name}", image)
    assert disks.sha256(image) in before

    # A disk that is plugged in later is read-only, too, and served.
    late = disks.blank(str(tmp_path / "late"))
    before.append(disks.sha256(late))
    machine.plug_in(late)
    machine.wait_for("Read-only: 6 of 6")
    room.run(CHEETAH, "acquire", "--listen", f"{guest.HOST_ADDRESS}:10826", str(tmp_path / "late.raw"))
    assert disks.sha256(str(tmp_path / "late.raw")) == before[-1]

    requests = machine.disk_requests()
    assert all(writes == 0 for _, writes, _ in requests.values())
    # The control of the tests of lending: a system with storage drivers fails the check.
    with pytest.raises(AssertionError):
        assert_untouched(at_start, {name: requests[name] for name in at_start})
    machine.press("q")
    guest.wait_for(machine.requests_or_end, "the machine's end")
    assert all(writes == 0 for _, writes, _ in machine.last_requests.values())
    assert [disks.sha256(path) for path in [*paths, late]] == before
