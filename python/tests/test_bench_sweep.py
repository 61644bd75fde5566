"""Targets times swept values: every combination once, each with its own name; invalid ones refused."""

import itertools
from pathlib import Path

import pytest

from cheetah.bench.failure import Misuse
from cheetah.bench.storage.options import sweep, syntax
from cheetah.bench.storage.settings import TargetSpec

KIB, MIB = 1 << 10, 1 << 20
VALUES = {
    "unit": "16KiB,64KiB,256KiB",
    "layout": "linear,stripe",
    "nodes": "1,2,3",
    "fs": "ext4,xfs",
    "readahead": "0,1MiB",
}
SOME = [keys for length in range(len(VALUES) + 1) for keys in itertools.combinations(VALUES, length)]


def expanded(targets: list[str], *sweeps: str) -> list[TargetSpec]:
    return list(sweep.expand([syntax.target(word) for word in targets], sweep.parse(sweeps))[0])


def names(targets: list[str], *sweeps: str) -> list[str]:
    return [target.name for target in expanded(targets, *sweeps)]


@pytest.mark.parametrize("keys", SOME, ids=",".join)
@pytest.mark.parametrize("target", ["ram:stripe@local:3", "mine=ram:linear:xfs@a,b,c"])
def test_every_combination_occurs_once(target: str, keys: tuple[str, ...]) -> None:
    try:
        found = expanded([target], *(f"{key}={VALUES[key]}" for key in keys))
    except Misuse as misuse:
        # A unit is meaningless for a linear drive.
        assert "linear" in target and "unit" in keys and "layout" not in keys and "stripe unit" in str(misuse)
        return
    assert len({target.name for target in found}) == len(found)
    plans = {(target.drive, target.fs, target.readahead_bytes) for target in found}
    assert len(plans) == len(found)
    layouts = ["linear", "stripe"] if "layout" in keys else ["linear" if "linear" in target else "stripe"]
    each = sum(3 if layout == "stripe" and "unit" in keys else 1 for layout in layouts)
    others = [key for key in keys if key not in ("layout", "unit")]
    wanted = each
    for key in others:
        wanted *= VALUES[key].count(",") + 1
    assert len(found) == wanted
    for target_made in found:
        assert target_made.drive is not None
        assert target_made.drive.width in ((1, 2, 3) if "nodes" in keys else (3,))


def test_units_and_nodes_of_the_article_can_be_swept() -> None:
    assert names(["ram:stripe@local:2"], "unit=16KiB,64KiB,256KiB") == [
        "ram:stripe:16KiB:ext4@2",
        "ram:stripe:64KiB:ext4@2",
        "ram:stripe:256KiB:ext4@2",
    ]


def test_a_given_name_stays_with_the_swept_value(tmp_path: Path) -> None:
    assert names([f"disk={tmp_path}", "fast=ram:stripe@a,b"], "nodes=1,2", "unit=64K,1M", "layout=linear,stripe") == [
        "disk",
        "fast linear 1 node",
        "fast linear 2 nodes",
        "fast stripe 64KiB 1 node",
        "fast stripe 64KiB 2 nodes",
        "fast stripe 1MiB 1 node",
        "fast stripe 1MiB 2 nodes",
    ]


def test_swept_nodes_are_the_first_named_ones() -> None:
    found = expanded(["ram:stripe@a,b:7,[::1]:9"], "nodes=1,3")
    assert [target.drive.nodes for target in found if target.drive] == [("a",), ("a", "b:7", "[::1]:9")]


def test_sweeps_for_drives_leave_directories_unchanged(tmp_path: Path) -> None:
    found = expanded([str(tmp_path), "ram:stripe@local:2"], "unit=16KiB,64KiB", "readahead=128KiB")
    assert [target.name for target in found if target.directory] == [str(tmp_path)]
    assert found[0].readahead_bytes is None
    assert [target.readahead_bytes for target in found[1:]] == [128 * KIB, 128 * KIB]


def test_a_swept_file_system_in_a_directory_is_in_a_file(tmp_path: Path) -> None:
    found = expanded([str(tmp_path)], "fs=ext4,xfs", "readahead=0,1MiB")
    assert [(target.fs, target.readahead_bytes) for target in found] == [
        ("ext4", 0), ("ext4", MIB), ("xfs", 0), ("xfs", MIB)
    ]  # fmt: skip
    assert all(target.directory == tmp_path for target in found)


def test_equal_combinations_are_measured_once() -> None:
    assert names(["ram:stripe@local:2"], "unit=64KiB,65536,64K") == ["ram:stripe:64KiB:ext4@2"]


def test_the_name_of_a_model_says_that_it_is_one() -> None:
    assert names(["disk:desktop", "array:parity@desktop:4"], "fs=xfs") == [
        "disk:desktop:xfs (model)",
        "array:parity:64KiB:xfs@desktop:4 (model)",
    ]
    assert names(["old=disk:ide"]) == ["old (model)"]


@pytest.mark.parametrize(
    ("targets", "sweeps", "said"),
    [
        (["{}"], ["unit=16KiB"], "applies to none of the targets"),
        (["{}"], ["layout=linear"], "applies to none of the targets"),
        (["{}"], ["nodes=1"], "applies to none of the targets"),
        (["{}"], ["readahead=1MiB"], "the read-ahead of your own disks is left alone"),
        (["ram:linear@a"], ["unit=16KiB"], "has a stripe unit"),
        (["ram:stripe@a,b"], ["nodes=1,3"], "has 2"),
        (["ram:stripe@a"], ["units=16KiB"], "KEY is layout, unit, nodes, fs, readahead"),
        (["ram:stripe@a"], ["unit="], "write KEY=A,B"),
        (["ram:stripe@a"], ["unit=16KiB,"], "is not a size"),
        (["ram:stripe@a"], ["unit=48KiB"], "power of two"),
        (["ram:stripe@a"], ["unit=8MiB"], "power of two"),
        (["ram:stripe@a"], ["layout=raid5"], "linear, stripe, mirror, parity"),
        (["ram:stripe@a,b"], ["layout=parity"], "a parity drive needs 3 nodes"),
        (["ram:parity@a,b,c"], ["nodes=2"], "a parity drive needs 3 nodes"),
        (["disk:ide"], ["unit=64KiB"], "applies to none"),
        (["ram:stripe@a"], ["fs=zfs"], "ext4, ext3, ext2, xfs, btrfs, vfat, ntfs"),
        (["ram:stripe@a"], ["nodes=0"], "not a number of nodes"),
        (["ram:stripe@a"], ["readahead=1000B"], "multiple of 4KiB"),
        (["ram:stripe@a"], ["unit=16KiB", "unit=64KiB"], "twice"),
        (["ram:stripe@a", "ram:stripe@b"], [], "NAME=TARGET"),
        (["ram:stripe@a", "ram:stripe@a"], [], "leave one out"),
        (["x=ram:stripe@a", "x={}"], [], "NAME=TARGET"),
        (["ram:stripe@local:64"], ["nodes=" + ",".join(map(str, range(1, 65))), "fs=ext4,xfs"], "sweep over less"),
    ],
)
def test_an_invalid_sweep_is_refused_with_a_valid_example(
    tmp_path: Path, targets: list[str], sweeps: list[str], said: str
) -> None:
    with pytest.raises(Misuse, match=said):
        expanded([target.format(tmp_path) for target in targets], *sweeps)


def test_drives_that_would_overwrite_each_other_are_refused() -> None:
    servers = "nbd://one:10809,nbd://two:10809"
    with pytest.raises(Misuse, match="would both write to nbd://one:10809"):
        expanded([f"ram:stripe@{servers}"], "layout=stripe,mirror")
    with pytest.raises(Misuse, match="would both write to nbd://two:10809"):
        expanded([f"ram:stripe@{servers}", "ram:linear@nbd://two:10809"])
    assert len(expanded(["ram:linear@nbd://one:10809", "ram:linear:xfs@nbd://two:10809"])) == 2
    # Nodes have room for several.
    assert len(expanded(["ram:stripe@one,two"], "layout=stripe,mirror")) == 2
