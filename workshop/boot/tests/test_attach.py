"""Block devices of the kernel that are only read, in a guest, of drives whose nodes are on another machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from boot.error import MissingError
from boot.tests import disks, guest
from boot.tests.attached import DRIVERS, GRACE, attach, nothing_hangs, skip_without, start_nodes, why_not
from boot.tests.guest import CHEETAH
from boot.tests.shell import Shell

PROGRAMS = ("e2fsck", "nbd-client")
MODULES = (*DRIVERS.values(), "ext4", "xfs", "ntfs3")
NEEDED = ("mkfs.ext4", "mkfs.xfs", "mkntfs", "ntfscp", *PROGRAMS)


class Disk(NamedTuple):
    """A guest, the disk whose image is on a drive, and the digests of the disk and of the file in each partition."""

    machine: Shell
    kinds: list[str]
    sha256: str
    sha256_data: str


class Case(NamedTuple):
    """The disk, and the driver that shows it."""

    machine: Shell
    disk: Disk
    driver: str

    def attach(self, options: str = "", source: str = "case.drive") -> Any:
        """Attaches a source; returns what the command says."""
        return attach(self.machine, source, options, self.driver)


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disk]:
    """A guest that reaches two nodes with a drive."""
    if why := why_not(NEEDED):
        pytest.skip(why)
    dir = tmp_path_factory.mktemp("attach")
    data, disk = dir / "data", dir / "disk.raw"
    data.write_bytes(os.urandom(4 * disks.MIB))
    kinds = disks.partitioned(str(disk), str(data))
    with guest.room(str(dir)) as room:
        drive = str(dir / "case.drive")
        nodes = start_nodes(room, 2).addresses
        room.run(CHEETAH, "create", drive, "--nodes", nodes, "--layout", "stripe", "--from", str(disk))
        room.run(CHEETAH, "create", str(dir / "other.drive"), "--nodes", nodes, "--layout", "stripe", "--size", "8MiB")
        disks.with_large_sectors(str(dir / "large-sectors.raw"))
        files = {name: str(dir / name) for name in ("case.drive", "other.drive", "large-sectors.raw")}
        try:
            machine = Shell(room, str(dir), PROGRAMS, MODULES, files)
        except MissingError as error:
            pytest.skip(str(error))
        yield Disk(machine, kinds, disks.sha256(str(disk)), disks.sha256(str(data)))
        machine.kill()


@pytest.fixture(params=DRIVERS)
def case(disk: Disk, request: pytest.FixtureRequest) -> Case:
    """The disk, once with each driver."""
    skip_without(request.param)
    return Case(disk.machine, disk, request.param)


@pytest.fixture
def nbd(disk: Disk) -> Case:
    """The disk with nbd, for what this driver alone has."""
    return Case(disk.machine, disk, "nbd")


@pytest.fixture
def ublk(disk: Disk) -> Case:
    """The disk with ublk, for what this driver alone has."""
    skip_without("ublk")
    return Case(disk.machine, disk, "ublk")


def test_without_the_module_the_next_step_is_named(case: Case) -> None:
    machine, module = case.machine, DRIVERS[case.driver]
    # Otherwise the kernel loads the module when it is asked for it.
    loader = machine.output("cat /proc/sys/kernel/modprobe")
    machine.run(f"rmmod {module}; echo /nonexistent >/proc/sys/kernel/modprobe")
    chosen = "" if case.driver == "nbd" else f"--driver {case.driver}"
    refused = machine.run(f"timeout 60 cheetah attach /case.drive {chosen}", check=False)
    assert refused.code == 1 and f"modprobe {module}" in refused.output and "cheetah mount" in refused.output, refused
    machine.run(f"echo {loader} >/proc/sys/kernel/modprobe; modprobe {module}")


def test_a_drive_is_a_read_only_block_device_with_its_partitions(case: Case) -> None:
    machine, disk, said = case.machine, case.disk, case.attach()
    device, parts = said["device"], said["partitions"]
    assert parts == [f"{device}p{number}" for number in (1, 2, 3)] and not said["writable"], said
    assert machine.output(f"sha256sum {device}").startswith(disk.sha256)
    # The kernel refuses writes; and if it is told not to, the drive does.
    for path in (device, *parts):
        assert machine.output(f"blockdev --getro {path}") == "1"
    assert machine.run(f"dd if=/bin/busybox of={device} bs=4096 count=1", check=False).code != 0
    machine.run(f"blockdev --setrw {device}")
    assert machine.run(f"dd if=/bin/busybox of={device} bs=4096 count=1 conv=fsync", check=False).code != 0
    machine.run(f"blockdev --flushbufs {device}")
    assert machine.output(f"sha256sum {device}").startswith(disk.sha256)
    for kind, part in zip(disk.kinds, parts, strict=True):
        options = {"ext4": "ro,noload", "xfs": "ro,norecovery"}.get(kind, "ro")
        machine.run(f"mount -t {kind} -o {options} {part} /mnt")
        assert machine.output("sha256sum /mnt/data").startswith(disk.sha256_data), kind
        refused = machine.run(f"cheetah detach {device}", check=False)
        assert refused.code == 1 and "in use (mounted on /mnt)" in refused.output, refused
        machine.run("umount /mnt")
    machine.run(f"e2fsck -fn {parts[0]}")
    machine.run(f"cheetah detach {device}")
    # An ended process has its id until the guest's first process has noticed.
    machine.until(f"! kill -0 {said['pid']}")
    assert machine.output("ls /run/cheetah") == "" and machine.run(f"ls {parts[0]}", check=False).code != 0
    again = machine.run(f"cheetah detach {device}", check=False)
    assert again.code == 1 and "not attached by Cheetah" in again.output, again


def test_without_its_process_a_device_fails_in_time_and_leaves_nothing_hanging(case: Case) -> None:
    machine, said = case.machine, case.attach(GRACE[case.driver])
    device = said["device"]
    machine.run(f"mount -t ext4 -o ro,noload {device}p1 /mnt; kill -9 {said['pid']}; echo 3 >/proc/sys/vm/drop_caches")
    failed = machine.run("timeout 120 sha256sum /mnt/data", check=False)
    assert failed.code == 1 and "error" in failed.output.lower(), failed
    nothing_hangs(machine)
    machine.run(f"umount /mnt && cheetah detach {device}")
    assert machine.output("ls /run/cheetah") == ""


def test_a_device_whose_process_is_stopped_can_be_detached(case: Case) -> None:
    machine, said = case.machine, case.attach()
    device = said["device"]
    machine.run(f"kill -STOP {said['pid']}")
    reading = machine.start(f"dd if={device} of=/dev/null bs=4096 count=1 iflag=direct", "/tmp/read")
    machine.until(f"grep -q '[1-9]' /sys/block/{Path(device).name}/inflight")
    machine.run(f"timeout 100 cheetah detach --force {device}")
    machine.until(f"! kill -0 {reading}")
    nothing_hangs(machine)
    assert machine.output("ls /run/cheetah") == ""


def test_an_overlay_takes_the_writes_of_a_file_system(case: Case) -> None:
    machine = case.machine
    device = case.attach("--overlay memory:64MiB")["device"]
    machine.run(f"mount -t ext4 {device}p1 /mnt && cp /bin/busybox /mnt/new && umount /mnt && mount {device}p1 /mnt")
    machine.run("cmp /bin/busybox /mnt/new && umount /mnt")
    machine.run(f"e2fsck -fn {device}p1 && cheetah detach {device}")
    said = case.attach()
    assert machine.output(f"sha256sum {said['device']}").startswith(case.disk.sha256)
    machine.run(f"kill {said['pid']}")
    machine.until(f"! kill -0 {said['pid']}")
    assert machine.run(f"cheetah detach {said['device']}", check=False).code != 0


def test_sectors_have_the_size_that_was_asked_for(case: Case) -> None:
    device = case.attach("--sector-size 4096")["device"]
    assert case.machine.output(f"blockdev --getss {device}") == "4096"
    case.machine.run(f"cheetah detach {device}")


def test_a_disk_with_sectors_of_4096_bytes_has_its_partitions_without_being_asked_for_them(case: Case) -> None:
    machine, said = case.machine, case.attach(source="large-sectors.raw")
    device = said["device"]
    assert said["partitions"] == [f"{device}p1"], said
    assert machine.output(f"blockdev --getss {device}") == "4096"
    machine.run(f"e2fsck -fn {device}p1 && cheetah detach {device}")


def test_the_process_of_a_device_locks_its_memory_and_says_that_it_serves_a_disk(case: Case) -> None:
    machine, said = case.machine, case.attach()
    locked = int(machine.output(f"awk '/VmLck/ {{print $2}}' /proc/{said['pid']}/status"))
    assert locked > 0 and machine.output(f"cat /proc/{said['pid']}/oom_score_adj") == "-1000"
    # PF_MEMALLOC_NOIO, which PR_SET_IO_FLUSHER sets.
    flags = int(machine.output(f"cut -d' ' -f9 /proc/{said['pid']}/stat"))
    assert flags & 0x00080000, hex(flags)
    machine.run(f"cheetah detach {said['device']}")


def test_a_writable_device_is_refused_where_a_node_of_the_drive_runs(case: Case) -> None:
    machine = case.machine
    node = machine.start("cheetah node --memory 64MiB --listen 127.0.0.1:7001 --insecure", "/tmp/node")
    machine.until("rm -f /tmp/own.drive; cheetah create /tmp/own.drive --nodes 127.0.0.1:7001 --size 8MiB")
    refused = machine.run("cheetah attach /tmp/own.drive --writable", check=False)
    assert refused.code == 2 and "its node 127.0.0.1:7001 on this machine" in refused.output, refused
    assert "cheetah mount --writable" in refused.output, refused
    # Nothing waits for a device that is only read.
    device = case.attach(source="tmp/own.drive")["device"]
    machine.run(f"cheetah detach {device}; kill {node}")
    machine.until(f"! kill -0 {node}")


def test_an_nbd_device_whose_process_was_killed_is_resumed_under_its_file_system(nbd: Case) -> None:
    machine, said = nbd.machine, nbd.attach("--device /dev/nbd3 --timeout 2")
    device = said["device"]
    assert device == "/dev/nbd3"
    machine.run(f"mount -t ext4 -o ro,noload {device}p1 /mnt")
    alive = machine.run(f"cheetah attach /case.drive --resume {device}", check=False)
    assert alive.code == 1 and "still serves" in alive.output, alive
    machine.run(f"kill -9 {said['pid']}; echo 3 >/proc/sys/vm/drop_caches")
    machine.start("sha256sum /mnt/data", "/tmp/read")
    other = machine.run(f"cheetah attach /other.drive --resume {device}", check=False)
    assert other.code == 1 and "cheetah:read:drive:" in other.output, other
    resumed = nbd.attach(f"--resume {device} --timeout 2")
    assert resumed["device"] == device and resumed["pid"] != said["pid"]
    assert machine.until("grep data /tmp/read").startswith(nbd.disk.sha256_data)
    machine.run("umount /mnt")
    machine.run(f"cheetah detach {device}")


def test_an_nbd_device_that_has_failed_is_resumed_too(nbd: Case) -> None:
    machine, said = nbd.machine, nbd.attach(GRACE["nbd"])
    device = said["device"]
    machine.run(f"mount -t ext4 -o ro,noload {device}p1 /mnt; kill -9 {said['pid']}; echo 3 >/proc/sys/vm/drop_caches")
    assert machine.run("timeout 120 sha256sum /mnt/data", check=False).code == 1
    resumed = nbd.attach(f"--resume {device} {GRACE['nbd']}")
    assert machine.output("sha256sum /mnt/data").startswith(nbd.disk.sha256_data)
    machine.run(f"kill -9 {resumed['pid']}")
    refused = machine.run(f"cheetah detach {device}", check=False)
    assert refused.code == 1 and "mounted on /mnt" in refused.output, refused
    machine.run(f"umount /mnt; cheetah detach {device}")
    assert machine.run(f"cat /sys/block/{Path(device).name}/pid", check=False).code != 0


def test_an_nbd_device_that_the_kernel_has_made_read_only_is_refused_for_writes(nbd: Case) -> None:
    nbd.machine.run("blockdev --setro /dev/nbd2")
    refused = nbd.machine.run("cheetah attach /case.drive --overlay memory --device /dev/nbd2", check=False)
    assert refused.code == 1 and "blockdev --setrw /dev/nbd2" in refused.output, refused


def test_nbd_client_makes_the_same_device_of_an_export(nbd: Case) -> None:
    machine, device = nbd.machine, "/dev/nbd5"
    export = machine.start("cheetah export /case.drive --unix /run/case.sock", "/tmp/export")
    machine.until(f"nbd-client -unix /run/case.sock -N case {device}")
    assert machine.output(f"sha256sum {device}").startswith(nbd.disk.sha256)
    assert machine.output(f"blockdev --getro {device}") == "1"
    for number, kind in enumerate(nbd.disk.kinds, 1):
        options = {"ext4": "ro,noload", "xfs": "ro,norecovery"}.get(kind, "ro")
        machine.run(f"mount -t {kind} -o {options} {device}p{number} /mnt")
        assert machine.output("sha256sum /mnt/data").startswith(nbd.disk.sha256_data), kind
        machine.run("umount /mnt")
    machine.run(f"e2fsck -fn {device}p1; nbd-client -d {device}")
    machine.run(f"kill {export}")
    machine.until(f"! kill -0 {export}")


def test_a_ublk_device_whose_process_is_dead_is_removed_by_the_next_attach(ublk: Case) -> None:
    machine = ublk.machine
    device = ublk.attach()["device"]
    refused = machine.run(f"cheetah attach /case.drive --driver ublk --resume {device}", check=False)
    assert refused.code == 2 and "--resume needs --driver nbd" in refused.output, refused
    machine.run(f"cheetah detach {device}")
    machine.run(f"kill -9 {ublk.attach()['pid']}")
    said = ublk.attach()
    assert machine.output(f"sha256sum {said['device']}").startswith(ublk.disk.sha256)
    assert machine.output("ls /run/cheetah") == os.path.basename(said["device"])
    machine.run(f"kill {said['pid']}")
    machine.until(f"! kill -0 {said['pid']}")
    assert machine.run(f"ls {said['device']}", check=False).code != 0
