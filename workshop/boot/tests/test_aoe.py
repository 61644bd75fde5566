"""Disks over ATA over Ethernet: the kernel's block devices of the targets of a foreign server."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from boot.error import MissingError
from boot.tests import disks, guest
from boot.tests.shell import Shell
from boot.tests.test_attach import why_not

SIZE_BYTES = 8 * disks.MIB
DEVICE = "/dev/etherd/e7.1"


class Target(NamedTuple):
    """A guest beside a server of one read-only target."""

    machine: Shell
    room: guest.Room
    sha256: str


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    """A guest with the block device of a target with random content."""
    if why := why_not(["vblade"]):
        pytest.skip(why)
    disk = tmp_path / "disk.raw"
    disk.write_bytes(os.urandom(SIZE_BYTES))
    with guest.room(str(tmp_path)) as room:
        try:
            machine = Shell(room, str(tmp_path), with_modules=["aoe"])
        except MissingError as error:
            pytest.skip(str(error))
        # The bridge has its address, which the server reads once, from the guest's port.
        room.start("vblade", "-r", "7", "1", "br0", str(disk))
        machine.until(f"echo >/dev/etherd/discover; test -b {DEVICE}")
        yield Target(machine, room, disks.sha256(str(disk)))
        machine.kill()


def test_a_target_is_acquired_with_its_address_model_and_serial_number(target: Target) -> None:
    machine = target.machine
    machine.run(f"cheetah acquire {DEVICE} /run/disk.raw")
    assert machine.output("sha256sum /run/disk.raw").startswith(target.sha256)
    report = machine.output("cat /run/disk.raw.report.txt")
    facts = dict(re.findall(r"^(\S.*?) {2,}(.*)$", report, re.MULTILINE))
    assert (facts["kind"], facts["source"]) == ("block", DEVICE), report
    assert facts["AoE target"].startswith("shelf 7, slot 1, hardware address "), report
    assert facts["model"] == "Coraid EtherDrive vblade" and facts["serial number"].startswith("7.1:"), report
