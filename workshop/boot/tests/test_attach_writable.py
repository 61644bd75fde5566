"""Block devices of the kernel that are written, of drives whose nodes are on another machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from boot.error import MissingError
from boot.tests import guest
from boot.tests.attached import DRIVERS, GRACE, Nodes, attach, nothing_hangs, skip_without, start_nodes, why_not
from boot.tests.guest import CHEETAH
from boot.tests.shell import Shell

PROGRAMS = ("mkfs.ext4", "e2fsck")
MODULES = (*DRIVERS.values(), "ext4")
# What is written to a device, through the kernel's cache, and how.
WRITTEN_BYTES = 64 << 20
CONTENT = f"yes one-line-after-another | head -c {WRITTEN_BYTES}"
WRITE = f"{CONTENT} | dd of={{device}} bs=65536 conv=fsync"
# A node that was killed closes its connections, and no other may be given up because an emulated machine is slow.
PATIENT = "--writable --timeout 60"
# The memory that a machine under pressure has left.
LEFT_KIB = 64 << 10


class Machine(NamedTuple):
    """A guest on a network."""

    shell: Shell
    room: guest.Room
    dir: Path


class Scratch(NamedTuple):
    """An empty drive that survives the loss of one of its three nodes, in a guest, and the driver that shows it."""

    machine: Shell
    nodes: Nodes
    driver: str

    def attach(self, options: str = PATIENT) -> Any:
        """Attaches the drive; returns what the command says."""
        return attach(self.machine, "scratch.drive", f"--prefetch 8MiB {options}", self.driver)

    def start_writing(self, device: str) -> int:
        """Starts WRITE, and returns the id of its process once the device has a request."""
        writing = self.machine.start(WRITE.format(device=device), "/tmp/write")
        self.machine.until(f"grep -q '[1-9]' /sys/block/{Path(device).name}/inflight")
        return writing

    def written(self, device: str) -> None:
        """Asserts that the drive, not the kernel's cache, has what WRITE wrote."""
        self.machine.run(f"blockdev --flushbufs {device}; echo 3 >/proc/sys/vm/drop_caches")
        expected = self.machine.output(f"{CONTENT} | sha256sum").split()[0]
        found = self.machine.output(f"head -c {WRITTEN_BYTES} {device} | sha256sum").split()[0]
        assert found == expected


def _guest(factory: pytest.TempPathFactory, memory_mib: int, *more: str) -> Iterator[Machine]:
    programs = (*PROGRAMS, *more)
    if why := why_not(programs):
        pytest.skip(why)
    dir = factory.mktemp("writable")
    with guest.room(str(dir)) as room:
        try:
            shell = Shell(room, str(dir), programs, MODULES, memory_mib=memory_mib)
        except MissingError as error:
            pytest.skip(str(error))
        yield Machine(shell, room, dir)
        shell.kill()


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A guest with memory for file systems."""
    yield from _guest(tmp_path_factory, 768, "fio")


@pytest.fixture(scope="module")
def small_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A guest with little memory."""
    yield from _guest(tmp_path_factory, 256)


def _drive(machine: Machine, driver: str) -> Iterator[Scratch]:
    skip_without(driver)
    nodes = start_nodes(machine.room, 3)
    drive = machine.dir / "scratch.drive"
    drive.unlink(missing_ok=True)
    machine.room.run(
        CHEETAH, "create", str(drive), "--nodes", nodes.addresses, "--layout", "parity", "--size", "192MiB"
    )
    machine.shell.put(str(drive), "/scratch.drive")
    yield Scratch(machine.shell, nodes, driver)
    nodes.end()


@pytest.fixture(params=DRIVERS)
def scratch(machine: Machine, request: pytest.FixtureRequest) -> Iterator[Scratch]:
    """A drive in a guest with memory for file systems, once with each driver."""
    yield from _drive(machine, request.param)


@pytest.fixture(params=DRIVERS)
def small(small_machine: Machine, request: pytest.FixtureRequest) -> Iterator[Scratch]:
    """A drive in a guest with little memory, once with each driver."""
    yield from _drive(small_machine, request.param)


@pytest.fixture
def small_nbd(small_machine: Machine) -> Iterator[Scratch]:
    """A drive in a guest with little memory, with nbd."""
    yield from _drive(small_machine, "nbd")


def test_a_file_system_is_made_and_verified_on_a_drive(scratch: Scratch) -> None:
    machine, said = scratch.machine, scratch.attach()
    device = said["device"]
    assert said["writable"] and machine.output(f"blockdev --getro {device}") == "0"
    job = (
        f"fio --name=v --filename={device} --size=48M --bs=16k --rw=randwrite --iodepth=32 --ioengine=libaio --direct=1"
    )
    machine.run(f"{job} --verify=crc32c --verify_fatal=1 --do_verify=1")
    machine.run(f"blkdiscard {device} && mkfs.ext4 -q -F {device} && mount -t ext4 {device} /mnt")
    machine.run("cp /bin/cheetah /mnt/copy && umount /mnt")
    machine.run(f"cheetah detach {device}")
    device = scratch.attach("")["device"]
    machine.run(
        f"e2fsck -fn {device} && mount -t ext4 -o ro {device} /mnt && cmp /mnt/copy /bin/cheetah && umount /mnt"
    )
    machine.run(f"cheetah detach {device}")


def test_a_file_system_is_used_on_while_its_drive_loses_a_node(scratch: Scratch) -> None:
    machine, device = scratch.machine, scratch.attach()["device"]
    machine.run(f"mkfs.ext4 -q -F {device} && mount -t ext4 {device} /mnt && cp /bin/cheetah /mnt/before && sync")
    scratch.nodes.processes[0].kill()
    machine.run("cp /bin/cheetah /mnt/after && sync && echo 3 >/proc/sys/vm/drop_caches")
    for name in ("before", "after"):
        machine.run(f"cmp /bin/cheetah /mnt/{name}")
    machine.run(f"umount /mnt && e2fsck -fn {device} && cheetah detach {device}")


def test_a_machine_short_of_memory_writes_on_while_the_drive_loses_a_node(small: Scratch) -> None:
    machine, device = small.machine, small.attach()["device"]
    free_kib = int(machine.output("awk '/MemAvailable/ {print $2}' /proc/meminfo"))
    machine.run(f"mount -t tmpfs -o size=100% tmpfs /mnt; head -c {(free_kib - LEFT_KIB) << 10} /dev/zero >/mnt/held")
    writing = small.start_writing(device)
    small.nodes.processes[0].kill()
    machine.until(f"! kill -0 {writing}")
    machine.run("grep records /tmp/write && ! grep -i error /tmp/write && ! dmesg | grep oom-kill")
    machine.run("umount /mnt")
    small.written(device)
    machine.run(f"cheetah detach {device}")


def test_writes_to_a_device_whose_process_was_killed_fail_in_time_and_leave_nothing_hanging(small: Scratch) -> None:
    machine, said = small.machine, small.attach(f"--writable {GRACE[small.driver]}")
    device = said["device"]
    writing = small.start_writing(device)
    machine.run(f"kill -9 {said['pid']}")
    machine.until(f"! kill -0 {writing}")
    machine.run("grep -i error /tmp/write")
    nothing_hangs(machine)
    # Without it, nbd's device stays attached: what was not written could still be, after --resume.
    machine.run(f"cheetah detach --force {device}")
    assert machine.output("ls /run/cheetah") == ""
    device = small.attach(f"{PATIENT} --force-lease")["device"]
    machine.run(WRITE.format(device=device))
    small.written(device)
    machine.run(f"cheetah detach {device}")


def test_a_writable_device_whose_process_was_killed_is_resumed_without_losing_a_write(small_nbd: Scratch) -> None:
    machine, said = small_nbd.machine, small_nbd.attach("--writable --timeout 2")
    device = said["device"]
    writing = small_nbd.start_writing(device)
    machine.run(f"kill -9 {said['pid']}")
    resumed = small_nbd.attach(f"{PATIENT} --force-lease --resume {device}")
    assert resumed["device"] == device and resumed["pid"] != said["pid"]
    machine.until(f"! kill -0 {writing}")
    small_nbd.written(device)
    machine.run(f"cheetah detach {device}")
