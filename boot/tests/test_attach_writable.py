"""Block devices of the kernel that are written, of drives whose nodes are on another machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from boot.tests import guest
from boot.tests.guest import CHEETAH
from boot.tests.shell import Shell
from boot.tests.test_attach import Nodes, start_nodes, why_not

PROGRAMS = ("mkfs.ext4", "e2fsck")
MODULES = ("nbd", "ext4")
# What is written to a device, through the kernel's cache, and how.
WRITTEN_BYTES = 64 << 20
CONTENT = f"yes one-line-after-another | head -c {WRITTEN_BYTES}"
WRITE = f"{CONTENT} | dd of={{device}} bs=65536 conv=fsync"
# The memory that a machine under pressure has left.
LEFT_KIB = 64 << 10


class Scratch(NamedTuple):
    """A guest with little memory, and an empty drive that survives the loss of one of its three nodes."""

    machine: Shell
    room: guest.Room
    nodes: Nodes

    def attach(self, options: str = "--writable") -> Any:
        """Attaches the drive; returns what the command says."""
        command = f"cheetah --json attach /scratch.drive --background --prefetch 8MiB {options}"
        return json.loads(self.machine.output(command))

    def written(self, device: str) -> None:
        """Asserts that the drive, not the kernel's cache, has what WRITE wrote."""
        self.machine.run(f"blockdev --flushbufs {device}; echo 3 >/proc/sys/vm/drop_caches")
        expected = self.machine.output(f"{CONTENT} | sha256sum").split()[0]
        found = self.machine.output(f"head -c {WRITTEN_BYTES} {device} | sha256sum").split()[0]
        assert found == expected


@pytest.fixture
def scratch(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Scratch]:
    """A guest that reaches three nodes with an empty drive. Its parameters are its memory in MiB, and more programs."""
    memory_mib, *more = getattr(request, "param", (256,))
    programs = (*PROGRAMS, *more)
    if why := why_not(programs):
        pytest.skip(why)
    with guest.room(str(tmp_path)) as room:
        drive = str(tmp_path / "scratch.drive")
        nodes = start_nodes(room, 3)
        room.run(CHEETAH, "create", drive, "--nodes", nodes.addresses, "--layout", "parity", "--size", "192MiB")
        files = {"scratch.drive": drive}
        machine = Shell(room, str(tmp_path), programs, MODULES, files, memory_mib=memory_mib)
        yield Scratch(machine, room, nodes)
        machine.kill()


@pytest.mark.parametrize("scratch", [(768, "fio")], indirect=True)
def test_a_file_system_is_made_and_verified_on_a_drive(scratch: Scratch) -> None:
    machine, said = scratch.machine, scratch.attach()
    device = said["device"]
    assert said["writable"] and machine.output(f"blockdev --getro {device}") == "0"
    job = (
        f"fio --name=v --filename={device} --size=48M --bs=16k --rw=randwrite --iodepth=32 --ioengine=libaio --direct=1"
    )
    machine.run(f"{job} --verify=crc32c --verify_fatal=1 --do_verify=1")
    machine.run(f"mkfs.ext4 -q -F {device} && mount -t ext4 {device} /mnt && cp /bin/cheetah /mnt/copy && umount /mnt")
    machine.run(f"cheetah detach {device}")
    device = scratch.attach("")["device"]
    machine.run(
        f"e2fsck -fn {device} && mount -t ext4 -o ro {device} /mnt && cmp /mnt/copy /bin/cheetah && umount /mnt"
    )
    machine.run(f"cheetah detach {device}")


def test_a_writable_device_whose_process_was_killed_is_resumed_without_losing_a_write(scratch: Scratch) -> None:
    machine, said = scratch.machine, scratch.attach("--writable --timeout 2")
    device = said["device"]
    writing = machine.start(WRITE.format(device=device), "/tmp/write")
    machine.until(f"grep -q '[1-9]' /sys/block/{Path(device).name}/inflight")
    machine.run(f"kill -9 {said['pid']}")
    resumed = scratch.attach(f"--writable --timeout 2 --force-lease --resume {device}")
    assert resumed["device"] == device and resumed["pid"] != said["pid"]
    machine.until(f"! kill -0 {writing}")
    scratch.written(device)
    machine.run(f"cheetah detach {device}")


@pytest.mark.parametrize("scratch", [(768,)], indirect=True)
def test_a_file_system_is_used_on_while_its_drive_loses_a_node(scratch: Scratch) -> None:
    machine, device = scratch.machine, scratch.attach("--writable --timeout 2")["device"]
    machine.run(f"mkfs.ext4 -q -F {device} && mount -t ext4 {device} /mnt && cp /bin/cheetah /mnt/before && sync")
    scratch.nodes.processes[0].kill()
    machine.run("cp /bin/cheetah /mnt/after && sync && echo 3 >/proc/sys/vm/drop_caches")
    for name in ("before", "after"):
        machine.run(f"cmp /bin/cheetah /mnt/{name}")
    machine.run(f"umount /mnt && e2fsck -fn {device} && cheetah detach {device}")


def test_a_machine_short_of_memory_writes_on_while_the_drive_loses_a_node(scratch: Scratch) -> None:
    machine, device = scratch.machine, scratch.attach("--writable --timeout 2")["device"]
    free_kib = int(machine.output("awk '/MemAvailable/ {print $2}' /proc/meminfo"))
    machine.run(f"mount -t tmpfs -o size=100% tmpfs /mnt; head -c {(free_kib - LEFT_KIB) << 10} /dev/zero >/mnt/held")
    writing = machine.start(WRITE.format(device=device), "/tmp/write")
    machine.until(f"grep -q '[1-9]' /sys/block/{Path(device).name}/inflight")
    scratch.nodes.processes[0].kill()
    machine.until(f"! kill -0 {writing}")
    machine.run("grep records /tmp/write && ! grep -i error /tmp/write && ! dmesg | grep oom-kill")
    machine.run("umount /mnt")
    scratch.written(device)
    machine.run(f"cheetah detach {device}")
