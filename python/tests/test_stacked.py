"""Volumes in volumes, and over several sources: read, and triaged."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import triage_images
from conftest import MIB
from test_lvm import GROUP, Group, require
from test_md import disk, raid5
from test_unlock import PASSWORD, luks, triaged
from test_unlock import disk as partitioned
from triage_workers import Alone

import cheetah
from cheetah.triage.hub import run as hub
from cheetah.triage.hub.closing import DONE
from cheetah.triage.hub.folder import Misuse
from cheetah.triage.hub.run import Run
from cheetah.triage.settings import Settings


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker, in this process."""
    monkeypatch.setattr(hub, "_start_workers", lambda uri, settings: Alone(uri, settings))


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A file system."""
    return triage_images.ext4(tmp_path)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A file with the key."""
    path = tmp_path / "keys.txt"
    path.write_text(f"{PASSWORD}\n")
    return path


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    """A group of one physical volume."""
    require()
    made = Group(tmp_path, 1)
    try:
        yield made
    finally:
        made.detach()


def listed_as_alone(found: Path, image: Path, tmp_path: Path) -> bool:
    """Whether a triage lists the files of an image as one of it alone does."""
    triaged(image, tmp_path / "plain")
    return (found / "bodyfile.txt").read_bytes() == (tmp_path / "plain/bodyfile.txt").read_bytes()


def test_files_in_a_locked_volume_in_a_logical_volume_are_listed(
    group: Group, image: Path, keys: Path, tmp_path: Path
) -> None:
    locked = luks(image).read_bytes()
    group.add("home", "-l", str(len(locked) // MIB), GROUP)
    group.plant("home", locked)
    group.detach()
    path = group.images[0]
    with cheetah.open(path, unlock=keys) as device:
        assert device.unlocked is not None
        (opened,) = device.unlocked["opened"]
        assert opened["inside"] == "vg--case-home"
        assert device.pread(opened["offset"], image.stat().st_size) == image.read_bytes()
        (home,) = device.logical["volumes"]
        assert home["is_used"]
    code, summary = triaged(path, tmp_path / "out", keys)
    assert code == DONE, summary["problems"]
    (volume,) = [one for one in summary["volumes"] if one["fs"]]
    assert volume["fs"] == "ext4"
    assert volume["description"].startswith("logical volume vg-case/home, LUKS, encrypted")
    assert listed_as_alone(tmp_path / "out", image, tmp_path)


def test_files_in_a_partition_of_an_array_are_listed_and_so_are_those_that_are_locked_there(
    image: Path, keys: Path, tmp_path: Path
) -> None:
    for name, inner, said in (
        ("plain", image, "partition 1 of md_home"),
        ("locked", luks(image), "opened with key slot 0"),
    ):
        members = raid5(partitioned(inner).read_bytes())
        given = [keys] if name == "locked" else []
        code, summary = triaged(disk(tmp_path / f"{name}.raw", members), tmp_path / name, *given)
        assert code == DONE, summary["problems"]
        (volume,) = [one for one in summary["volumes"] if one["fs"]]
        assert said in volume["description"]
        assert listed_as_alone(tmp_path / name, image, tmp_path / f"of-{name}")


def test_files_on_an_array_over_several_sources_are_listed(image: Path, tmp_path: Path) -> None:
    paths = []
    for number, member in enumerate(raid5(image.read_bytes())):
        paths.append(tmp_path / f"disk{number}.raw")
        paths[-1].write_bytes(member)
    with cheetah.open(paths[0], beside=paths[1:]) as device:
        (array,) = device.logical["volumes"]
        assert device.size == paths[0].stat().st_size <= array["offset"]
        assert device.pread(array["offset"], image.stat().st_size) == image.read_bytes()
        assert device.read() == paths[0].read_bytes()
    settings = Settings(str(paths[0]), str(tmp_path / "out"), beside=tuple(map(str, paths[1:])))
    code, summary = Run(settings, lambda event: None, ("cheetah", "triage")).go()
    assert code == DONE, summary["problems"]
    assert [one["fs"] for one in summary["volumes"] if one["fs"]] == ["ext4"]
    assert summary["source"]["beside"] == list(map(str, paths[1:]))
    assert listed_as_alone(tmp_path / "out", image, tmp_path / "alone")
    # The same folder is not for other sources.
    with pytest.raises(Misuse):
        triaged(paths[0], tmp_path / "out")
