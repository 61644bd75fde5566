"""udev, LVM and md beside attached evidence, in a guest: what Debian's rules do, and what ours keep them from."""

from __future__ import annotations

import glob
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from boot.error import MissingError
from boot.packages import Packages
from boot.tests import guest
from boot.tests.attached import DRIVERS, UDEV_RULES, attach, skip_without, start_nodes, why_not
from boot.tests.disks import MIB
from boot.tests.guest import CHEETAH
from boot.tests.shell import PACKAGES, Shell

PROGRAMS = ("nbd-client",)
MODULES = (*DRIVERS.values(), "dm-mod", "raid1", "ext4")
# Debian's packages: the programs and the rules that they bring, and the libraries of those programs.
TOOLS = {"udev": "bin/udevadm", "dmsetup": "sbin/dmsetup", "lvm2": "sbin/lvm", "mdadm": "sbin/mdadm"}
LIBRARIES = ("libaio1", "libbsd0", "libdevmapper-event1.02.1", "libedit2", "libmd0")
RULES = ("60-block", "60-persistent-storage", "55-dm", "56-lvm", "69-lvm", "95-dm-notify")
RULES = (*RULES, "63-md-raid-arrays", "64-md-raid-assembly")
PART_MIB = 16
# Volumes and arrays that the kernel has activated.
ACTIVE = "{ dmsetup info -c --noheadings -o name | grep -v 'No devices'; grep ^md /proc/mdstat; } 2>/dev/null"
# Ends them, so that udev may activate them again: LVM remembers what it has activated.
END = "lvm vgchange -an evidence && mdadm --stop --scan && udevadm settle && rm -f /run/lvm/*_online/*"


class Case(NamedTuple):
    """A guest with udev, and a drive whose partitions are an LVM physical volume and a member of an md array."""

    machine: Shell
    driver: str

    def attach(self) -> str:
        """Attaches the drive so that it can be written; returns the device once udev has looked at it."""
        device: str = attach(self.machine, "members.drive", "--overlay memory:32MiB", self.driver)["device"]
        self.machine.run("udevadm settle")
        return device


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A guest with udev, LVM and md, and a drive with a volume group and an array."""
    if why := why_not(PROGRAMS):
        pytest.skip(why)
    dir = tmp_path_factory.mktemp("udev")
    disk, drive = dir / "disk.raw", dir / "members.drive"
    two_partitions(disk)
    with guest.room(str(dir)) as room:
        nodes = start_nodes(room, 1).addresses
        room.run(CHEETAH, "create", str(drive), "--nodes", nodes, "--layout", "linear", "--from", str(disk))
        try:
            machine = Shell(room, str(dir), *with_udev())
        except MissingError as error:
            pytest.skip(str(error))
        machine.put(str(drive), "/members.drive")
        prepare(machine)
        yield machine
        machine.kill()


def two_partitions(path: Path) -> None:
    """Makes a disk with two empty partitions."""
    table = bytearray(512)
    table[510:] = b"\x55\xaa"
    sectors = PART_MIB * MIB // 512
    for number in range(2):
        struct.pack_into("<4xB3xII", table, 446 + 16 * number, 0x83, 2048 + number * sectors, sectors)
    path.write_bytes(table)
    with path.open("r+b") as disk:
        disk.truncate((2048 + 2 * sectors) * 512)


def with_udev() -> tuple[tuple[str, ...], tuple[str, ...], dict[str, str]]:
    """Returns the programs, the modules and the files of a guest with udev, LVM and md."""
    packages = Packages(PACKAGES)
    roots = {name: packages.unpack(name) for name in (*TOOLS, *LIBRARIES)}
    files = {"lib/udev/rules.d/59-cheetah.rules": UDEV_RULES}
    for root in roots.values():
        rules = {Path(path).stem: path for path in glob.glob(f"{root}/lib/udev/rules.d/*.rules")}
        files |= {f"lib/udev/rules.d/{name}.rules": path for name, path in rules.items() if name in RULES}
        files |= {
            f"lib/{Path(path).name}": path for path in glob.glob(f"{root}/**/x86_64-linux-gnu/*.so.*", recursive=True)
        }
    return (*PROGRAMS, *(f"{roots[name]}/{program}" for name, program in TOOLS.items())), MODULES, files


def prepare(machine: Shell) -> None:
    """Makes a volume group and an array on the drive, and starts udev."""
    for name, program in TOOLS.items():
        machine.run(f"ln -sf $(find / -xdev -path '*{name}_*/{program}') /{program}")
    machine.run("ln -s /bin/udevadm /sbin/systemd-udevd; mkdir -p /run/lvm /run/lock/lvm /etc/lvm")
    # Newer releases of udev look for file systems on devices of ublk, too.
    machine.run("sed -i 's/|nbd\\*/|nbd*|ublkb*/' /lib/udev/rules.d/60-*.rules")
    device = attach(machine, "members.drive", "--writable")["device"]
    # Without udev, LVM makes the names of volumes itself.
    lvm = "--config 'activation{udev_sync=0 udev_rules=0}'"
    machine.run(f"lvm pvcreate {device}p1 && lvm vgcreate {lvm} evidence {device}p1")
    machine.run(f"lvm lvcreate {lvm} -Zn -Wn -n data -L 4M evidence && lvm vgchange {lvm} -an evidence")
    machine.run(f"mdadm --create /dev/md7 --run --level=1 --raid-devices=1 --force --metadata=1.2 {device}p2")
    machine.run(f"mdadm --stop /dev/md7 && cheetah detach {device}")
    machine.run("systemd-udevd --daemon")


@pytest.fixture(params=DRIVERS)
def case(machine: Shell, request: pytest.FixtureRequest) -> Case:
    """The guest, once with each driver."""
    skip_without(request.param)
    return Case(machine, request.param)


def test_udev_looks_for_file_systems_on_every_device_but_ours(case: Case) -> None:
    machine, device = case.machine, Path(case.attach()).name
    for name in (f"{device}{part}" for part in ("", "p1", "p2")):
        shown = machine.output(f"udevadm info --query=property --name={name}").splitlines()
        assert "UDISKS_IGNORE=1" in shown and "DM_MULTIPATH_DEVICE_PATH=0" in shown, shown
        assert not [line for line in shown if line.startswith("ID_FS_")], shown
    machine.run(f"cheetah detach /dev/{device}")
    # Another program's device of nbd is not ours.
    export = machine.start("cheetah export /members.drive --unix /run/case.sock", "/tmp/export")
    machine.until("nbd-client -unix /run/case.sock -N members /dev/nbd5")
    machine.until("udevadm info --query=property --name=nbd5p1 | grep ID_FS_TYPE=LVM2_member")
    machine.run("udevadm settle")
    machine.run(f"{END} && nbd-client -d /dev/nbd5 && kill {export}")
    machine.until(f"! kill -0 {export}")


def test_device_files_are_roots_alone(case: Case) -> None:
    device = case.attach()
    modes = case.machine.output(f"stat -c '%a %u' {device} {device}p1 {device}p2").splitlines()
    assert modes == ["600 0"] * 3, modes
    case.machine.run(f"cheetah detach {device}")


def test_a_physical_volume_and_a_member_of_an_array_stay_inactive_and_without_our_rule_they_do_not(case: Case) -> None:
    machine, device = case.machine, case.attach()
    assert machine.run(ACTIVE, check=False).output == ""
    # A person can still ask for it.
    assert "evidence" in machine.output(f"lvm pvs --noheadings -o vg_name {device}p1")
    assert "Raid Level : raid1" in machine.output(f"mdadm --examine {device}p2")
    machine.run(f"cheetah detach {device}")
    rule = "/lib/udev/rules.d/59-cheetah.rules"
    machine.run(f"mv {rule} /tmp/rule && udevadm control --reload")
    device = case.attach()
    active = machine.until(f"{ACTIVE} | grep evidence-data && {ACTIVE} | grep ^md")
    assert Path(device).name in machine.output("cat /proc/mdstat"), active
    machine.run(f"{END} && cheetah detach {device}")
    machine.run(f"mv /tmp/rule {rule} && udevadm control --reload")
