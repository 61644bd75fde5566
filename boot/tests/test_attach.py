"""Block devices of the kernel, in a guest, of drives whose nodes are on another machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from boot.error import MissingError
from boot.packages import Packages
from boot.tests import disks, guest
from boot.tests.guest import CHEETAH, HOST_ADDRESS
from boot.tests.shell import PACKAGES, Shell

PROGRAMS = ("e2fsck", "nbd-client")
# The rules that look for file systems on a device, and ours, which keeps them off.
UDEV_RULES = ("60-block.rules", "60-persistent-storage.rules")
OUR_RULES = str(Path(__file__).resolve().parents[2] / "scripts" / "udev" / "59-cheetah.rules")
MODULES = ("nbd", "ublk_drv", "ext4", "xfs", "ntfs3")
NEEDED = ("mkfs.ext4", "mkfs.xfs", "mkntfs", "ntfscp", *PROGRAMS)
# After this time, requests to a device whose process is dead fail: the kernel's time-out for an answer, and for a new process.
GRACE = "--timeout 2 --grace 3"


class Case(NamedTuple):
    """A guest, the disk whose image is on a drive, and the digests of the disk and of the file in each partition."""

    machine: Shell
    room: guest.Room
    kinds: list[str]
    sha256: str
    sha256_data: str

    def attach(self, options: str = "", source: str = "case.drive") -> Any:
        """Attaches a source; returns what the command says."""
        return json.loads(self.machine.output(f"cheetah --json attach /{source} --background {options}"))


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
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
        files = {f"{name}.drive": str(dir / f"{name}.drive") for name in ("case", "other")}
        try:
            udev = Packages(PACKAGES).unpack("udev")
            files |= {f"lib/udev/rules.d/{name}": f"{udev}/lib/udev/rules.d/{name}" for name in UDEV_RULES}
            files["lib/udev/rules.d/59-cheetah.rules"] = OUR_RULES
            machine = Shell(room, str(dir), (*PROGRAMS, f"{udev}/bin/udevadm"), MODULES, files)
            machine.run(f"ln -s {udev}/bin/udevadm /sbin/systemd-udevd; ln -s {udev}/bin/udevadm /sbin/udevadm")
        except MissingError as error:
            pytest.skip(str(error))
        yield Case(machine, room, kinds, disks.sha256(str(disk)), disks.sha256(str(data)))
        machine.kill()


def why_not(programs: Sequence[str]) -> str | None:
    """Returns why these tests cannot run here, or None."""
    absent = [name for name in programs if not shutil.which(name)]
    if absent:
        return f"{', '.join(absent)} is not installed"
    return guest.missing() or (None if os.path.exists(CHEETAH) else "there is no static binary: run make static")


class Nodes(NamedTuple):
    """Nodes on this machine's side of the network."""

    addresses: str
    processes: list[subprocess.Popen[bytes]]


def start_nodes(room: guest.Room, count: int, memory: str = "256MiB") -> Nodes:
    """Starts nodes, and returns once they answer."""
    addresses, processes = [f"{HOST_ADDRESS}:{7001 + 10 * number}" for number in range(count)], []
    for number, address in enumerate(addresses):
        options = ("--memory", memory, "--listen", address, "--insecure", "--name", f"n{number}")
        processes.append(room.start(CHEETAH, "node", *options))
    for number, address in enumerate(addresses):
        url = f"http://{HOST_ADDRESS}:{7002 + 10 * number}/v1/status"
        guest.wait_for(lambda url=url: room.run("curl", "-fsS", url, check=False).returncode == 0, f"node {address}")
    return Nodes(",".join(addresses), processes)


def test_without_the_module_the_next_step_is_named(case: Case) -> None:
    machine = case.machine
    # Otherwise the kernel loads the module when it is asked for it.
    loader = machine.output("cat /proc/sys/kernel/modprobe")
    machine.run("rmmod nbd; echo /nonexistent >/proc/sys/kernel/modprobe")
    refused = machine.run("timeout 60 cheetah attach /case.drive", check=False)
    assert refused.code == 1 and "modprobe nbd" in refused.output and "cheetah mount" in refused.output, refused
    machine.run(f"echo {loader} >/proc/sys/kernel/modprobe; modprobe nbd")


def test_a_drive_is_a_read_only_block_device_with_its_partitions(case: Case) -> None:
    machine, said = case.machine, case.attach()
    device, parts = said["device"], said["partitions"]
    assert parts == [f"{device}p{number}" for number in (1, 2, 3)] and not said["writable"], said
    assert machine.output(f"sha256sum {device}").startswith(case.sha256)
    # The kernel refuses writes; and if it is told not to, the drive does.
    for path in (device, *parts):
        assert machine.output(f"blockdev --getro {path}") == "1"
    assert machine.run(f"dd if=/bin/busybox of={device} bs=4096 count=1", check=False).code != 0
    machine.run(f"blockdev --setrw {device}")
    assert machine.run(f"dd if=/bin/busybox of={device} bs=4096 count=1 conv=fsync", check=False).code != 0
    machine.run(f"blockdev --flushbufs {device}")
    assert machine.output(f"sha256sum {device}").startswith(case.sha256)
    for kind, part in zip(case.kinds, parts, strict=True):
        options = {"ext4": "ro,noload", "xfs": "ro,norecovery"}.get(kind, "ro")
        machine.run(f"mount -t {kind} -o {options} {part} /mnt")
        assert machine.output("sha256sum /mnt/data").startswith(case.sha256_data), kind
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


def test_a_device_whose_process_was_killed_is_resumed_under_its_file_system(case: Case) -> None:
    machine, said = case.machine, case.attach("--device /dev/nbd3 --timeout 2")
    device = said["device"]
    assert device == "/dev/nbd3"
    machine.run(f"mount -t ext4 -o ro,noload {device}p1 /mnt")
    alive = machine.run(f"cheetah attach /case.drive --resume {device}", check=False)
    assert alive.code == 1 and "still serves" in alive.output, alive
    machine.run(f"kill -9 {said['pid']}; echo 3 >/proc/sys/vm/drop_caches")
    machine.start("sha256sum /mnt/data", "/tmp/read")
    other = machine.run(f"cheetah attach /other.drive --resume {device}", check=False)
    assert other.code == 1 and "cheetah:read:drive:" in other.output, other
    resumed = case.attach(f"--resume {device} --timeout 2")
    assert resumed["device"] == device and resumed["pid"] != said["pid"]
    assert machine.until("grep data /tmp/read").startswith(case.sha256_data)
    machine.run("umount /mnt")
    machine.run(f"cheetah detach {device}")


def test_without_its_process_a_device_fails_in_time_and_leaves_nothing_hanging(case: Case) -> None:
    machine, said = case.machine, case.attach(GRACE)
    device = said["device"]
    machine.run(f"mount -t ext4 -o ro,noload {device}p1 /mnt; kill -9 {said['pid']}; echo 3 >/proc/sys/vm/drop_caches")
    failed = machine.run("timeout 120 sha256sum /mnt/data", check=False)
    assert failed.code == 1 and "error" in failed.output.lower(), failed
    assert machine.output("ps -o stat,comm | grep '^D' || true") == ""
    # It can be served again even now.
    resumed = case.attach(f"--resume {device} {GRACE}")
    assert machine.output("sha256sum /mnt/data").startswith(case.sha256_data)
    machine.run(f"kill -9 {resumed['pid']}")
    refused = machine.run(f"cheetah detach {device}", check=False)
    assert refused.code == 1 and "mounted on /mnt" in refused.output, refused
    machine.run(f"umount /mnt; cheetah detach {device}")
    assert machine.run(f"cat /sys/block/{Path(device).name}/pid", check=False).code != 0


def test_an_overlay_takes_the_writes_of_a_file_system(case: Case) -> None:
    machine = case.machine
    machine.run("blockdev --setro /dev/nbd2")
    refused = machine.run("cheetah attach /case.drive --overlay memory --device /dev/nbd2", check=False)
    assert refused.code == 1 and "blockdev --setrw /dev/nbd2" in refused.output, refused
    device = case.attach("--overlay memory:64MiB")["device"]
    machine.run(f"mount -t ext4 {device}p1 /mnt && cp /bin/busybox /mnt/new && umount /mnt && mount {device}p1 /mnt")
    machine.run("cmp /bin/busybox /mnt/new && umount /mnt")
    machine.run(f"e2fsck -fn {device}p1; cheetah detach {device}")
    said = case.attach()
    assert machine.output(f"sha256sum {said['device']}").startswith(case.sha256)
    machine.run(f"kill {said['pid']}")
    machine.until(f"! kill -0 {said['pid']}")
    assert machine.run(f"cat /sys/block/{Path(said['device']).name}/pid", check=False).code != 0


def test_a_writable_device_is_refused_where_a_node_of_the_drive_runs(case: Case) -> None:
    machine = case.machine
    node = machine.start("cheetah node --memory 64MiB --listen 127.0.0.1:7001 --insecure", "/tmp/node")
    machine.until("cheetah create /tmp/own.drive --nodes 127.0.0.1:7001 --size 8MiB")
    refused = machine.run("cheetah attach /tmp/own.drive --writable", check=False)
    assert refused.code == 2 and "its node 127.0.0.1:7001 on this machine" in refused.output, refused
    assert "cheetah mount --writable" in refused.output, refused
    # Nothing waits for a device that is only read.
    device = case.attach(source="tmp/own.drive")["device"]
    machine.run(f"cheetah detach {device}; kill {node}")


def test_nbd_client_makes_the_same_device_of_an_export(case: Case) -> None:
    machine, device = case.machine, "/dev/nbd5"
    export = machine.start("cheetah export /case.drive --unix /run/case.sock", "/tmp/export")
    machine.until(f"nbd-client -unix /run/case.sock -N case {device}")
    assert machine.output(f"sha256sum {device}").startswith(case.sha256)
    assert machine.output(f"blockdev --getro {device}") == "1"
    for number, kind in enumerate(case.kinds, 1):
        options = {"ext4": "ro,noload", "xfs": "ro,norecovery"}.get(kind, "ro")
        machine.run(f"mount -t {kind} -o {options} {device}p{number} /mnt")
        assert machine.output("sha256sum /mnt/data").startswith(case.sha256_data), kind
        machine.run("umount /mnt")
    machine.run(f"e2fsck -fn {device}p1; nbd-client -d {device}")
    machine.run(f"kill {export}")
    machine.until(f"! kill -0 {export}")


def test_udev_looks_for_file_systems_on_every_nbd_device_but_ours(case: Case) -> None:
    machine = case.machine
    machine.run("systemd-udevd --daemon")
    devices = [Path(case.attach(f"--driver {driver}")["device"]).name for driver in ("nbd", "ublk")]
    export = machine.start("cheetah export /case.drive --unix /run/case.sock", "/tmp/export")
    machine.until("nbd-client -unix /run/case.sock -N case /dev/nbd5")
    machine.until("udevadm info --query=property --name=nbd5p1 | grep ID_FS_TYPE=ext4")
    machine.run("udevadm settle")
    for name in (f"{device}{part}" for device in devices for part in ("", "p1", "p2", "p3")):
        shown = machine.output(f"udevadm info --query=property --name={name}").splitlines()
        assert "UDISKS_IGNORE=1" in shown and "DM_MULTIPATH_DEVICE_PATH=0" in shown, shown
        assert not [line for line in shown if line.startswith("ID_FS_")], shown
    machine.run(f"nbd-client -d /dev/nbd5; kill {export}")
    for device in devices:
        machine.run(f"cheetah detach /dev/{device}")
    machine.run("udevadm control --exit")
