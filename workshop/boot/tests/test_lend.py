"""A machine that lends what is idle, and needs it back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from boot.tests import guest
from boot.tests.attached import start_nodes, why_not
from boot.tests.guest import CHEETAH
from boot.tests.shell import Shell

IMAGE_BYTES = 320 << 20
PIECE_MIB = 8
# More than is available while the machine lends: its node has to give back what the drive has filled.
MORE_MIB = 64


def test_a_machine_that_lends_what_is_idle_gets_it_back_without_the_oom_killer_and_no_byte_is_lost(
    tmp_path: Path,
) -> None:
    if why := why_not(()):
        pytest.skip(why)
    with guest.room(str(tmp_path)) as room:
        first, second, spare = start_nodes(room, 3, "400MiB").addresses.split(",")
        machine = Shell(room, str(tmp_path), memory_mib=1024)
        lent = f"{machine.address}:10809"
        options = f"--memory auto --keep-free 192MiB --listen {lent} --insecure"
        node = machine.start(f"cheetah node {options}", "/tmp/node")
        url = f"http://{machine.address}:10810/v1/status"
        guest.wait_for(lambda: room.run("curl", "-fsS", url, check=False).returncode == 0, "the node in the guest")

        image, drive = tmp_path / "disk.raw", str(tmp_path / "case.drive")
        image.write_bytes(os.urandom(IMAGE_BYTES))
        nodes = f"{first},{second},{lent}"
        room.run(CHEETAH, "create", drive, "--nodes", nodes, "--spares", spare, "--no-seal", "--from", str(image))
        # Its process moves parts off nodes that need the memory.
        room.start(CHEETAH, "export", drive, "--writable", "--unix", str(tmp_path / "drive.sock"))
        guest.wait_for((tmp_path / "drive.sock").exists, "the export")

        available_mib = int(machine.output("awk '/MemAvailable/ {print $2}' /proc/meminfo")) >> 10
        pieces = (available_mib + MORE_MIB) // PIECE_MIB
        piece = f"head -c {PIECE_MIB << 20} /dev/zero >>/mnt/held || exit 1; sleep 0.2"
        machine.run("mount -t tmpfs -o size=100% tmpfs /mnt")
        program = machine.start(f"for n in $(seq {pieces}); do {piece}; done; touch /run/done", "/tmp/program")
        machine.until(f"! kill -0 {program}")
        machine.run(f"[ -e /run/done ] && kill -0 {node} && ! dmesg | grep oom-kill")

        room.run(CHEETAH, "repair", drive, "--nodes", spare)
        assert room.run(CHEETAH, "status", drive).returncode == 0, "the drive is whole again"
        machine.kill()
        saved = tmp_path / "saved.raw"
        room.run(CHEETAH, "save", drive, str(saved))
        assert saved.read_bytes() == image.read_bytes()
