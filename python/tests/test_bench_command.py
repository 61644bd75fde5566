"""The command line of `cheetah bench storage`: its settings and its errors."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import PATIENCE_S

from cheetah.bench.failure import Misuse
from cheetah.bench.storage.options import command, syntax
from cheetah.bench.storage.settings import DrivePlan, Scope, Settings, TargetSpec

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_defaults_are_those_of_the_documentation(tmp_path: Path) -> None:
    assert command.parse(["."]) == Settings(
        targets=(TargetSpec(str(tmp_path), tmp_path),), baseline=str(tmp_path), out=tmp_path / "cheetah-bench"
    )


def test_every_option_is_parsed(tmp_path: Path) -> None:
    (tmp_path / "case.raw").write_bytes(b"image")
    given = (
        "disk=. --image case.raw --repetitions 5 --states warm,cold --steps copy,md5sum --step-limit 90s --full "
        "--out results --resume --beside-evidence --json ram:linear:xfs@local:2 --name fast=ram:16KiB@one,two:7 "
        "--baseline fast"
    )
    assert command.parse(given.split()) == Settings(
        targets=(
            TargetSpec("disk", tmp_path),
            TargetSpec("ram:linear:xfs@2", None, DrivePlan("linear", 64 * KIB, (), 2), "xfs"),
            TargetSpec("fast", None, DrivePlan("stripe", 16 * KIB, ("one", "two:7")), "ext4"),
        ),
        baseline="fast",
        out=tmp_path / "results",
        image=tmp_path / "case.raw",
        steps=("copy", "md5sum"),
        repetitions=5,
        states=("cold", "warm"),
        extent=Scope.FULL,
        step_limit_s=90.0,
        resume=True,
        beside_evidence=True,
        json=True,
    )


def test_redundant_drives_given_servers_and_models_are_targets() -> None:
    given = (
        "ram:parity:16KiB@a,nbd://b:7/x,nbd+unix:///?socket=/s ram:mirror@local:2 disk:desktop old=disk:ide:ext3 "
        "array:stripe:256KiB@desktop:4"
    )
    assert command.parse(given.split()).targets == (
        TargetSpec(
            "ram:parity:16KiB:ext4@3",
            None,
            DrivePlan("parity", 16 * KIB, ("a", "nbd://b:7/x", "nbd+unix:///?socket=/s")),
            "ext4",
        ),
        TargetSpec("ram:mirror:64KiB:ext4@2", None, DrivePlan("mirror", 64 * KIB, (), 2), "ext4"),
        TargetSpec("disk:desktop:ext4 (model)", fs="ext4", disk_model="desktop"),
        TargetSpec("old (model)", fs="ext3", disk_model="ide"),
        TargetSpec(
            "array:stripe:256KiB:ext4@desktop:4 (model)",
            None,
            DrivePlan("stripe", 256 * KIB, (), 4, "desktop"),
            "ext4",
        ),
    )


def test_a_baseline_may_be_a_model_as_given() -> None:
    assert command.parse(["old=disk:ide", "disk:desktop", "--baseline", "old"]).baseline == "old (model)"


def test_a_quick_run_measures_each_step_once() -> None:
    assert command.parse([".", "--quick"]).repetitions == 1
    assert command.parse([".", "--quick", "--repetitions", "2"]).repetitions == 2


def test_a_directory_may_contain_an_equals_sign(tmp_path: Path) -> None:
    (tmp_path / "a=b").mkdir()
    (target,) = command.parse(["a=b"]).targets
    assert target.directory == tmp_path / "a=b"


def test_the_same_target_under_two_names_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(Misuse, match="there twice"):
        command.parse([".", "link"])


@pytest.mark.parametrize(
    ("baseline", "is_"),
    [("disk", "disk ext4"), ("disk xfs", "disk xfs"), ("fast", "fast ext4")],
)
def test_a_baseline_may_be_a_swept_target(baseline: str, is_: str) -> None:
    given = ["fast=ram:stripe@a", "disk=.", "--sweep", "fs=ext4,xfs", "--baseline", baseline]
    assert command.parse(given).baseline == is_


def test_a_baseline_may_be_a_directory_as_given(tmp_path: Path) -> None:
    assert command.parse(["ram:stripe@a", ".", "--baseline", "."]).baseline == str(tmp_path)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("", "name a directory to measure"),
        ("nowhere", "there is no such directory"),
        ("file", "is not a directory"),
        ("nbd://host/", "is not a target"),
        ("ram:stripe", "does not name its nodes"),
        ("ram:stripe@", "does not name its nodes"),
        ("ram:stripe@a,,b", "HOST:PORT"),
        ("ram:stripe@local", "local:N"),
        ("ram:stripe@local:0", "not a number of nodes"),
        ("ram:stripe@local:x", "not a number of nodes"),
        ("ram:stripe@a,a", "twice"),
        ("ram:raid5@a", "is not a layout"),
        ("ram:stripe:linear@a", "leave one out"),
        ("ram:stripe:3KiB@a", "power of two"),
        ("ram:linear:64KiB@a", "no stripe unit"),
        ("ram:parity@a,b", "needs 3 nodes"),
        ("ram:mirror@a", "needs 2 nodes"),
        ("disk:floppy", "ide, desktop, velociraptor, zero"),
        ("disk:ide:zfs", "no file system 'zfs'"),
        ("array:stripe", "does not name its nodes"),
        ("array:stripe@floppy:4", "no model of a disk 'floppy'"),
        ("array:stripe@desktop", "not a number of nodes"),
        ("array:parity@desktop:2", "needs 3 nodes"),
        ("--name .", "NAME=TARGET"),
        (". --image nowhere", "there is no such file"),
        (". --image .", "is not a file"),
        (". --image empty", "empty"),
        (". --baseline other", "there is no such target"),
        (". --steps copy,polish", "there is no step 'polish'"),
        (". --steps ,", "commas"),
        (". --states cold,frozen", "cold, warm, or both"),
        (". --repetitions 0", "1 to 100"),
        (". --repetitions many", "1 to 100"),
        (". --step-limit soon", "90s, 5m or 1h"),
        (". --step-limit 0s", "90s, 5m or 1h"),
    ],
)
def test_an_invalid_value_is_refused_with_a_valid_example(tmp_path: Path, given: str, said: str) -> None:
    (tmp_path / "file").write_bytes(b"file")
    (tmp_path / "empty").touch()
    with pytest.raises(Misuse, match=said):
        command.parse(given.split())


@pytest.mark.parametrize("given", [". --quick --full", ". --nonsense", ". --rep 3", ". --out"])
def test_unknown_options_end_the_process(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.parse(given.split())
    assert ended.value.code == 2
    assert "Usage: cheetah bench storage" in capsys.readouterr().err


@pytest.mark.parametrize(("given", "code"), [(["nowhere"], 2), (["--states", "hot", "."], 2)])
def test_the_exit_code_distinguishes_misuse(given: list[str], code: int) -> None:
    argv = [sys.executable, "-m", "cheetah.bench", "storage", *given]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == code
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("4096", 4096),
        ("64KiB", 64 * KIB),
        ("64k", 64 * KIB),
        ("3 MiB", 3 * MIB),
        ("2G", 2 * GIB),
        ("1.5MiB", 3 * MIB // 2),
        ("12GB", 12 * 10**9),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert syntax.size(text) == size


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200)])
def test_durations(text: str, seconds: float) -> None:
    assert syntax.duration(text) == seconds


@pytest.mark.parametrize("text", ["", "-1", "64KB!", "KiB", "١", "9" * 30, "nan"])
def test_an_invalid_size_is_refused(text: str) -> None:
    with pytest.raises(Misuse, match="is not a size"):
        syntax.size(text)


def test_the_binding_has_all_settings_that_samples_depend_on(tmp_path: Path) -> None:
    (tmp_path / "case.raw").write_bytes(b"image")
    given = [".", "ram:stripe@a,b"]

    def bound(*more: str) -> dict[str, Any]:
        return command.parse([*given, *more]).binding()

    assert bound() == bound("--resume", "--json", "--out", "elsewhere", "--repetitions", "9")
    others = [
        ["--quick"],
        ["--states", "cold,warm"],
        ["--image", "case.raw"],
        ["--steps", "copy"],
        ["--sweep", "unit=4K"],
    ]
    for more in others:
        assert bound() != bound(*more), more
