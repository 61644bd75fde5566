"""Block devices of the kernel's driver ublk, in a guest, of drives whose nodes are on another machine."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from boot.error import MissingError
from boot.tests import disks, guest
from boot.tests.guest import CHEETAH
from boot.tests.shell import Shell
from boot.tests.test_attach import start_nodes, why_not

PROGRAMS = ("e2fsck", "mkfs.ext4", "fio")
NEEDED = ("mkfs.xfs", "mkntfs", "ntfscp", *PROGRAMS)
MODULES = ("ublk_drv", "ext4")


class Case(NamedTuple):
    """A guest, and the digests of the disk on a drive and of the file in its first partition."""

    machine: Shell
    sha256: str
    sha256_data: str

    def attach(self, options: str = "", source: str = "case.drive") -> Any:
        """Attaches a source through ublk; returns what the command says."""
        return json.loads(self.machine.output(f"cheetah --json attach /{source} --driver ublk --background {options}"))


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    """A guest that reaches two nodes with two drives: one with a partitioned disk, and one that is empty."""
    if why := why_not(NEEDED):
        pytest.skip(why)
    if b"--driver" not in subprocess.run([CHEETAH, "attach", "--help"], capture_output=True, check=True).stdout:
        pytest.skip("the static binary was built without ublk")
    dir = tmp_path_factory.mktemp("ublk")
    data, disk = dir / "data", dir / "disk.raw"
    data.write_bytes(os.urandom(4 * disks.MIB))
    disks.partitioned(str(disk), str(data))
    with guest.room(str(dir)) as room:
        nodes = start_nodes(room, 2).addresses
        for name, content in (("case", ("--from", str(disk))), ("scratch", ("--size", "96MiB"))):
            drive = str(dir / f"{name}.drive")
            room.run(CHEETAH, "create", drive, "--nodes", nodes, "--layout", "stripe", *content)
        files = {f"{name}.drive": str(dir / f"{name}.drive") for name in ("case", "scratch")}
        try:
            machine = Shell(room, str(dir), PROGRAMS, MODULES, files, memory_mib=1024)
        except MissingError as error:
            pytest.skip(str(error))
        yield Case(machine, disks.sha256(str(disk)), disks.sha256(str(data)))
        machine.kill()


def test_without_the_module_the_next_step_is_named(case: Case) -> None:
    machine = case.machine
    machine.run("rmmod ublk_drv")
    refused = machine.run("timeout 60 cheetah attach /case.drive --driver ublk", check=False)
    assert refused.code == 1 and "modprobe ublk_drv" in refused.output and "cheetah mount" in refused.output, refused
    machine.run("modprobe ublk_drv")


def test_a_drive_is_a_read_only_block_device_with_its_partitions(case: Case) -> None:
    machine, said = case.machine, case.attach()
    device, parts = said["device"], said["partitions"]
    assert parts == [f"{device}p{number}" for number in (1, 2, 3)] and not said["writable"], said
    assert machine.output(f"sha256sum {device}").startswith(case.sha256)
    # The kernel refuses writes, whatever it is told.
    machine.run(f"blockdev --setrw {device}")
    for path in (device, *parts):
        assert machine.output(f"blockdev --getro {path}") == "1"
    assert machine.run(f"dd if=/bin/busybox of={device} bs=4096 count=1 conv=fsync", check=False).code != 0
    assert machine.output(f"sha256sum {device}").startswith(case.sha256)
    machine.run(f"mount -t ext4 -o ro,noload {parts[0]} /mnt")
    assert machine.output("sha256sum /mnt/data").startswith(case.sha256_data)
    refused = machine.run(f"cheetah detach {device}", check=False)
    assert refused.code == 1 and "in use (mounted on /mnt)" in refused.output, refused
    machine.run(f"umount /mnt; e2fsck -fn {parts[0]}")
    machine.run(f"cheetah detach {device}")
    machine.until(f"! kill -0 {said['pid']}")
    assert machine.output("ls /run/cheetah") == "" and machine.run(f"ls {device} {parts[0]}", check=False).code != 0
    again = machine.run(f"cheetah detach {device}", check=False)
    assert again.code == 1 and "not attached by Cheetah" in again.output, again


def test_sectors_have_the_size_that_was_asked_for(case: Case) -> None:
    device = case.attach("--sector-size 4096")["device"]
    assert case.machine.output(f"blockdev --getss {device}") == "4096"
    case.machine.run(f"cheetah detach {device}")


def test_the_process_of_a_device_locks_its_memory_and_says_that_it_serves_a_disk(case: Case) -> None:
    machine, said = case.machine, case.attach()
    locked = int(machine.output(f"awk '/VmLck/ {{print $2}}' /proc/{said['pid']}/status"))
    assert locked > 0 and machine.output(f"cat /proc/{said['pid']}/oom_score_adj") == "-1000"
    # PF_MEMALLOC_NOIO, which PR_SET_IO_FLUSHER sets.
    flags = int(machine.output(f"cut -d' ' -f9 /proc/{said['pid']}/stat"))
    assert flags & 0x00080000, hex(flags)
    machine.run(f"cheetah detach {said['device']}")


def test_without_its_process_a_device_fails_in_time_and_leaves_nothing_hanging(case: Case) -> None:
    machine, said = case.machine, case.attach()
    device = said["device"]
    refused = machine.run(f"cheetah attach /case.drive --driver ublk --resume {device}", check=False)
    assert refused.code == 2 and "--resume needs --driver nbd" in refused.output, refused
    machine.run(f"mount -t ext4 -o ro,noload {device}p1 /mnt; kill -9 {said['pid']}; echo 3 >/proc/sys/vm/drop_caches")
    failed = machine.run("timeout 120 sha256sum /mnt/data", check=False)
    assert failed.code == 1 and "error" in failed.output.lower(), failed
    assert machine.output("ps -o stat,comm | grep '^D' || true") == ""
    machine.run("umount /mnt")
    machine.run(f"cheetah detach {device}")
    assert machine.output("ls /run/cheetah") == ""
    # What a process that was killed leaves behind is also removed by the next one.
    machine.run(f"kill -9 {case.attach()['pid']}")
    said = case.attach()
    assert machine.output(f"sha256sum {said['device']}").startswith(case.sha256)
    assert machine.output("ls /run/cheetah") == os.path.basename(said["device"])
    machine.run(f"kill {said['pid']}")
    machine.until(f"! kill -0 {said['pid']}")
    assert machine.run(f"ls {said['device']}", check=False).code != 0


def test_a_file_system_is_made_and_verified_on_a_drive(case: Case) -> None:
    machine, said = case.machine, case.attach("--writable", "scratch.drive")
    device = said["device"]
    assert said["writable"] and machine.output(f"blockdev --getro {device}") == "0"
    job = (
        f"fio --name=v --filename={device} --size=32M --bs=16k --rw=randwrite --iodepth=32 --ioengine=libaio --direct=1"
    )
    machine.run(f"{job} --verify=crc32c --verify_fatal=1 --do_verify=1")
    machine.run(f"blkdiscard {device} && mkfs.ext4 -q -F {device} && mount -t ext4 {device} /mnt")
    machine.run("cp /bin/cheetah /mnt/copy && umount /mnt")
    machine.run(f"cheetah detach {device}")
    device = case.attach(source="scratch.drive")["device"]
    machine.run(
        f"e2fsck -fn {device} && mount -t ext4 -o ro {device} /mnt && cmp /mnt/copy /bin/cheetah && umount /mnt"
    )
    machine.run(f"cheetah detach {device}")
