"""The image in emulated machines: what they lend, what they serve, and that they leave their disks alone."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from boot.cpio import Archive
from boot.tests import disks, guest
from boot.tests.conftest import CHEETAH

LENDING = b"--listen 0.0.0.0:10809 --insecure --join 10.77.0.1:10811\n"
SERVING = b"--listen 0.0.0.0:PORT --insecure\n"


def lab(path: Path) -> str:
    """Writes a lab's own archive."""
    made = Archive()
    made.file("etc/cheetah/lend", LENDING, 0o644)
    made.file("etc/cheetah/serve", SERVING, 0o644)
    made.file("etc/cheetah/linger", b"1\n", 0o644)
    path.write_bytes(made.content())
    return str(path)


def address(text: str) -> str:
    """Returns the address that a machine shows on its screen."""
    found = re.search(r"This machine: \S+\s+(10\.77\.0\.\d+)/", text)
    assert found, text
    return found[1]


def test_two_machines_join_lose_nothing_and_leave_their_disks_alone(
    live: str, room: guest.Room, tmp_path: Path
) -> None:
    paths = [disks.blank(str(tmp_path / f"disk{number}")) for number in range(5)]
    before = [disks.sha256(path) for path in paths]
    boot = guest.direct(live, "lend", lab(tmp_path / "lab.img"))
    with_disks = guest.Guest(room, str(tmp_path), "disks", 1, boot, disks.every_adapter(paths))
    with_disks.wait_for("Starting")
    at_start = with_disks.disk_requests()
    other = guest.Guest(room, str(tmp_path), "plain", 2, boot)
    image = disks.blank(str(tmp_path / "image.raw"))
    drive = str(tmp_path / "case.drive")

    room.run(CHEETAH, "create", drive, "--wait", "2", "--listen", "10.77.0.1:10811", "--insecure", "--from", image)

    here = address(with_disks.wait_for(r"This machine: \S+ +10.*\n.*\n").group(0))
    status = json.loads(room.run("curl", "-s", f"http://{here}:10810/v1/status").stdout)
    assert status["disks_visible"] == 0 and status["memory"]["locked"]
    assert status["memory"]["lent_bytes"] >= guest.MEMORY_MIB * 0.9 * disks.MIB
    assert "Disks visible: 0" in with_disks.console()
    room.run(CHEETAH, "verify", drive)
    # The power of one is cut; the drive survives it.
    other.kill()
    room.run(CHEETAH, "verify", drive)
    # The other machine cannot say that it wiped its memory, hence the failure.
    assert room.run(CHEETAH, "destroy", drive, "--force", check=False).returncode == 1 and not os.path.exists(drive)
    with_disks.press("q")
    guest.wait_for(lambda: with_disks.requests_or_end(), "the machine's end")
    assert "verified zero" in with_disks.console()
    # No request reached a disk after the kernel's start, and nothing was written before it either.
    assert with_disks.last_requests == at_start
    assert all(writes == 0 for _, writes, _ in at_start.values()) and len(at_start) >= 5
    assert [disks.sha256(path) for path in paths] == before


def test_a_served_machine_gives_identical_images_and_its_disks_stay_as_they_were(
    live: str, room: guest.Room, tmp_path: Path
) -> None:
    kinds = (disks.dirty_ext4, disks.pending_ntfs, disks.lvm_member, disks.md_member, disks.blank)
    paths = [make(str(tmp_path / make.__name__)) for make in kinds]
    before = [disks.sha256(path) for path in paths]
    boot = guest.direct(live, "serve", lab(tmp_path / "lab.img"))
    machine = guest.Guest(room, str(tmp_path), "suspect", 1, boot, disks.every_adapter(paths))
    machine.wait_for("Disks visible: 5")
    machine.wait_for(r"(?s)(serving.*){5}")
    here = address(machine.wait_for(r"This machine: \S+ +10.*\n.*\n").group(0))

    acquired = set()
    for port in range(10809, 10819, 2):
        image = str(tmp_path / f"{port}.raw")
        name = json.loads(room.run("nbdinfo", "--list", "--json", f"nbd://{here}:{port}").stdout)["exports"][0][
            "export-name"
        ]
        room.run(CHEETAH, "acquire", f"nbd://{here}:{port}/{name}", image)
        acquired.add(disks.sha256(image))
        os.remove(image)

    assert acquired == set(before)
    requests = machine.disk_requests()
    # The control of the test above: with drivers, reads do show.
    assert sum(reads > 0 for reads, _, _ in requests.values()) >= 5
    assert all(writes == 0 for _, writes, _ in requests.values())
    machine.kill()
    assert [disks.sha256(path) for path in paths] == before
