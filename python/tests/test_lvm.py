"""Logical volumes of LVM2: read as dissect.volume reads them, and triaged."""

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
import triage_images
from conftest import MIB, noise, program, run
from test_unlock import PASSWORD, luks, triaged
from triage_workers import Alone

import cheetah
from cheetah.triage.hub import run as hub
from cheetah.triage.hub.closing import DONE, EVIDENCE

PHYSICAL_BYTES = 32 * MIB
HOME_BYTES = 26 * MIB
GROUP = "vg-case"


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker, in this process."""
    monkeypatch.setattr(hub, "_start_workers", lambda uri, settings: Alone(uri, settings))


class Group:
    """A volume group that LVM2 makes on files, without the kernel's device mapper: nothing is activated."""

    def __init__(self, folder: Path, count: int):
        self.images = [folder / f"pv{number}.raw" for number in range(count)]
        self.disks: list[str] = []
        for number, image in enumerate(self.images):
            image.write_bytes(noise(PHYSICAL_BYTES, number))
            self.disks.append(run(program("losetup"), "--find", "--show", image).strip())
        only = ",".join(f'"a|^{disk}$|"' for disk in self.disks)
        self._config = (
            f'devices{{filter=[{only},"r|.*|"] use_devicesfile=0 obtain_device_list_from_udev=0}} '
            "activation{udev_sync=0 udev_rules=0 verify_udev_operations=0 monitoring=0} backup{backup=0 archive=0} "
            f'global{{use_lvmpolld=0 activation=0 locking_dir="{folder}/locks"}}'
        )
        self.lvm("pvcreate", "-ff", "-y", *self.disks)
        self.lvm("vgcreate", "-s", "1M", GROUP, *self.disks)

    def lvm(self, verb: str, *argv: str) -> str:
        """Runs a program of LVM2, which sees only the disks of this group."""
        return run(program(verb), "--config", self._config, *argv)

    def add(self, name: str, *argv: str) -> None:
        """Adds a logical volume."""
        self.lvm("lvcreate", "-an", "-Zn", "-Wn", "-y", "-n", name, *argv)

    def plant(self, name: str, content: bytes) -> None:
        """Writes content to where LVM2 says that a linear volume lies."""
        rows = self.lvm("lvs", "--segments", "--noheadings", "-o", "seg_pe_ranges", f"{GROUP}/{name}")
        for row in rows.split():
            disk, extents = row.rsplit(":", 1)
            first, last = map(int, extents.split("-"))
            length = (last - first + 1) * MIB
            with self.images[self.disks.index(disk)].open("r+b") as file:
                file.seek((1 + first) * MIB)
                file.write(content[:length])
            content = content[length:]
        assert not content

    def detach(self) -> None:
        """Lets the files go."""
        while self.disks:
            run(program("losetup"), "--detach", self.disks.pop())


def require() -> None:
    """Skips the test if no group can be made here."""
    for name in "losetup", "vgcreate", "lvcreate", "lvs":
        program(name)
    if os.geteuid() != 0 or not Path("/dev/loop-control").exists():
        pytest.skip("needs root and loop devices")


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    """A group of two physical volumes with linear and striped volumes; `home` lies on both, in several pieces."""
    require()
    made = Group(tmp_path, 2)
    try:
        made.add("home", "-l", "22", GROUP, made.disks[0])
        made.add("fast", "-i", "2", "-I", "64k", "-l", "8", GROUP)
        made.add("small", "-l", "2", GROUP, made.disks[1])
        made.lvm("lvextend", "-l", "+4", f"{GROUP}/home", made.disks[1])
        yield made
    finally:
        made.detach()


def disk(images: list[Path]) -> Path:
    """A disk with a physical volume in each of its partitions."""
    sectors, path = PHYSICAL_BYTES // 512, images[0].with_name("disk.raw")
    places = (2048 + number * sectors for number in range(len(images)))
    entries = [struct.pack("<B3xB3xII", 0, 0x8E, first, sectors) for first in places]
    table = bytes(446) + b"".join(entries).ljust(64, b"\0") + b"\x55\xaa"
    path.write_bytes(table.ljust(MIB, b"\0") + b"".join(image.read_bytes() for image in images))
    return path


def grown(image: Path, size: int) -> bytes:
    """The content of an image, and zeros up to the size of a volume."""
    return image.read_bytes().ljust(size, b"\0")


def test_logical_volumes_read_as_dissect_volume_reads_them(group: Group, tmp_path: Path) -> None:
    lvm = pytest.importorskip("dissect.volume.lvm")
    group.detach()
    files = [image.open("rb") for image in group.images]
    path = disk(group.images)
    size = path.stat().st_size
    with cheetah.open(path) as device, cheetah.share(path) as share, cheetah.open(share.uri) as shared:
        assert device.size == share.size == size and not device.logical["not_opened"]
        assert share.logical == device.logical
        ours = {one["name"]: one for one in device.logical["volumes"]}
        theirs = {one.name: one for one in lvm.LVM2(files).vg.lv}
        assert ours.keys() == theirs.keys() == {"home", "fast", "small"}
        for name, one in ours.items():
            content = device.pread(one["offset"], one["size_bytes"])
            assert len(content) == one["size_bytes"]
            assert one["id"] == theirs[name].id.replace("-", "")
            # It places stripes behind each other.
            assert name == "fast" or content == theirs[name].open().read(), name
            assert shared.pread(one["offset"] + 4000, 100_000) == content[4000:104_000], name
        # In one piece where it lies; in several behind the end, where only `pread` of an offset reaches.
        assert ours["small"]["offset"] < size <= min(ours["home"]["offset"], ours["fast"]["offset"])
        assert device.pread(size - 10, 100) == path.read_bytes()[-10:]
        assert device.read() == path.read_bytes()
    for file in files:
        file.close()


def test_a_striped_volume_reads_as_grub_reads_it(group: Group, tmp_path: Path) -> None:
    grub = program("grub-fstest")
    group.detach()
    with cheetah.open(disk(group.images)) as device:
        (fast,) = [one for one in device.logical["volumes"] if one["name"] == "fast"]
        content = device.pread(fast["offset"], fast["size_bytes"])
    copy = tmp_path / "fast"
    run(grub, "-c", "2", *group.images, "cp", f"(lvm/vg--case-fast)0+{fast['size_bytes'] // 512}", copy)
    assert content == copy.read_bytes()


def test_files_in_a_volume_over_two_partitions_are_listed_as_in_the_file_system_alone(
    group: Group, tmp_path: Path
) -> None:
    image = triage_images.ext4(tmp_path)
    # Noise looks encrypted to The Sleuth Kit.
    group.lvm("lvremove", "-y", f"{GROUP}/fast")
    group.plant("home", grown(image, HOME_BYTES))
    group.plant("small", bytes(2 * MIB))
    group.detach()
    code, summary = triaged(disk(group.images), tmp_path / "out")
    (volume,) = [one for one in summary["volumes"] if one["fs"]]
    assert (volume["fs"], volume["length"]) == ("ext4", HOME_BYTES)
    assert volume["description"].startswith("logical volume vg-case/home")
    assert summary["source"]["size_bytes"] == MIB + 2 * PHYSICAL_BYTES
    assert code == DONE, summary["problems"]
    triaged(image, tmp_path / "plain")
    assert (tmp_path / "out/bodyfile.txt").read_bytes() == (tmp_path / "plain/bodyfile.txt").read_bytes()
    assert triaged(tmp_path / "disk.raw", tmp_path / "out")[0] == DONE


def test_files_in_a_logical_volume_inside_a_locked_one_are_listed(group: Group, tmp_path: Path) -> None:
    image = triage_images.ext4(tmp_path)
    group.lvm("lvremove", "-y", f"{GROUP}/home", f"{GROUP}/fast", f"{GROUP}/small")
    group.add("root", "-l", "26", GROUP, group.disks[0])
    group.lvm("vgreduce", GROUP, group.disks[1])
    group.plant("root", grown(image, HOME_BYTES))
    group.detach()
    locked = luks(group.images[0])
    keys = tmp_path / "keys.txt"
    keys.write_text(PASSWORD)
    code, summary = triaged(locked, tmp_path / "out", keys)
    assert code == DONE, summary["problems"]
    (volume,) = [one for one in summary["volumes"] if one["fs"]]
    (logical,) = summary["source"]["logical"]["volumes"]
    assert (volume["fs"], volume["start"]) == ("ext4", logical["offset"])
    assert volume["description"].startswith("logical volume vg-case/root")
    triaged(image, tmp_path / "plain")
    assert (tmp_path / "out/bodyfile.txt").read_bytes() == (tmp_path / "plain/bodyfile.txt").read_bytes()


def test_a_group_that_is_not_complete_is_a_gap(group: Group, tmp_path: Path) -> None:
    group.plant("small", bytes(2 * MIB))
    group.detach()
    with cheetah.open(group.images[1]) as device:
        assert [one["name"] for one in device.logical["volumes"]] == ["small"]
    code, summary = triaged(group.images[1], tmp_path / "out")
    assert code == EVIDENCE
    said = " ".join(one["sentence"] for one in summary["problems"] if one["gap"])
    assert "vg-case is not complete: its physical volume pv0" in said
    assert "vg-case/home is not opened: it lies on pv0" in said
