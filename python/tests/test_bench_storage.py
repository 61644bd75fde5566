"""The real steps on full or read-only targets, and without a tool: each is reported, and the run continues."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import PATIENCE_S, program, run

STEPS = "copy,md5sum,strings,unallocated,tsk_recover,tar"
Mount = Callable[[str, str], Path]


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """Mounts an ext4 image of a size, with options; the directory."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount file systems")
    mounted: list[Path] = []

    def make(size: str, options: str) -> Path:
        directory = tmp_path / f"mounted{len(mounted)}"
        directory.mkdir()
        run(program("mkfs.ext4"), "-q", "-O", "^has_journal", f"{directory}.raw", size)
        run("mount", "-o", f"loop,{options}", f"{directory}.raw", directory)
        mounted.append(directory)
        return directory

    yield make
    for directory in mounted:
        run("umount", directory)


class Measured:
    """The results of a run."""

    def __init__(self, out: Path, code: int, said: str) -> None:
        self.code, self.said = code, said
        self.samples: list[dict[str, Any]] = json.loads((out / "results.json").read_text())["parts"][0]["samples"]

    def outcomes(self, target: str) -> dict[str, tuple[str, str]]:
        """Returns how each step ended on a target, and why."""
        return {one["step"]: (one["outcome"], one["problem"]) for one in self.samples if one["target"] == target}


def measure(ext4: Path, out: Path, *words: str | Path, path: str | None = None) -> Measured:
    """Measures once, quickly, on the given targets."""
    for tool in ("strings", "blkls", "tsk_recover"):
        program(tool)
    argv = [sys.executable, "-m", "cheetah.bench", "storage", "--image", str(ext4), "--out", str(out)]
    argv += ["--quick", "--repetitions", "1", *map(str, words)]
    environment = {**os.environ, "PATH": path or os.environ["PATH"]}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=environment)
    return Measured(out, done.returncode, done.stdout + done.stderr)


def test_all_steps_are_measured_and_nothing_is_left_behind(ext4: Path, tmp_path: Path) -> None:
    """Each is done, with its measurements; its output is removed."""
    target = tmp_path / "target"
    target.mkdir()
    run_ = measure(ext4, tmp_path / "out", f"here={target}", "--steps", STEPS)
    assert run_.code == 0, run_.said
    assert {step: outcome for step, (outcome, _) in run_.outcomes("here").items()} == dict.fromkeys(
        STEPS.split(","), "done"
    )
    for sample in run_.samples:
        assert sample["seconds"] > 0
        assert sample["resident_share_before"] is not None
    assert list(target.iterdir()) == []


def test_a_tool_that_is_missing_or_reads_too_little_is_reported(ext4: Path, tmp_path: Path) -> None:
    """The first step is skipped. The second tool reads only the beginning and ends with 0, as after a read error; it
    would look fast."""
    folder, target = tmp_path / "bin", tmp_path / "target"
    folder.mkdir()
    target.mkdir()
    for name in ("cp", "md5sum", "sync", "setpriv", "stat"):
        (folder / name).symlink_to(program(name))
    tool = folder / "strings"
    tool.write_text(f'#!/bin/sh\nfor image; do :; done\nexec {program("head")} -c 1000000 "$image"\n')
    tool.chmod(0o755)
    run_ = measure(
        ext4, tmp_path / "out", f"here={target}", "--steps", "copy,sha256sum,strings,md5sum", path=str(folder)
    )
    steps = run_.outcomes("here")
    assert steps["sha256sum"][0] == "skipped"
    assert "sha256sum is not installed" in steps["sha256sum"][1]
    assert steps["strings"][0] == "failed"
    assert "read fails" in steps["strings"][1]
    assert [steps[step][0] for step in ("copy", "md5sum")] == ["done"] * 2, run_.said
    assert run_.code == 1


def test_unusable_targets_do_not_stop_the_others(ext4: Path, tmp_path: Path, mount: Mount) -> None:
    """Each of their steps has a reason, before a byte is written to them; the other target is measured."""
    target = tmp_path / "target"
    target.mkdir()
    sealed, small = mount("8M", "ro"), mount("4M", "rw")
    targets = [f"sealed={sealed}", f"small={small}", f"here={target}"]
    run_ = measure(ext4, tmp_path / "out", *targets, "--steps", "copy,md5sum")
    assert run_.code == 1
    assert [outcome for outcome, _ in run_.outcomes("here").values()] == ["done", "done"]
    for name, why in (("sealed", "read-only"), ("small", "free")):
        for outcome, problem in run_.outcomes(name).values():
            assert outcome != "done"
            assert why in problem
    assert {path.name for path in small.iterdir()} == {"lost+found"}


def test_a_step_that_fills_its_target_is_a_failure(ext4: Path, tmp_path: Path, mount: Mount) -> None:
    """Another process writes to it meanwhile; steps that do not need the image continue."""
    busy = mount("96M", "rw")
    # A tool of that name that first fills the disk.
    folder = tmp_path / "bin"
    folder.mkdir()
    fills = folder / "cp"
    fills.write_text(
        f'#!/bin/sh\n{shutil.which("dd")} if=/dev/zero of={busy}/others bs=1M 2>/dev/null\nexec {program("cp")} "$@"\n'
    )
    fills.chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    run_ = measure(ext4, tmp_path / "out", f"busy={busy}", "--steps", "copy,md5sum", path=path)
    steps = run_.outcomes("busy")
    assert run_.code == 1
    assert steps["copy"][0] == "failed"
    assert "No space left" in steps["copy"][1]
    assert steps["md5sum"][0] == "not reached"
    assert "copy" in steps["md5sum"][1]
    assert sorted(path.name for path in busy.iterdir()) == ["lost+found", "others"]


def test_a_vanishing_image_costs_no_results(ext4: Path, tmp_path: Path) -> None:
    """Its disk was removed: earlier measurements are kept, with the reason for the end."""
    target, folder, gone = tmp_path / "target", tmp_path / "bin", tmp_path / "gone.raw"
    target.mkdir()
    folder.mkdir()
    gone.write_bytes(ext4.read_bytes())
    takes = folder / "md5sum"
    takes.write_text(f'#!/bin/sh\n{shutil.which("rm")} -f {gone}\nexec {program("md5sum")} "$@"\n')
    takes.chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    run_ = measure(gone, tmp_path / "out", f"here={target}", "--steps", "copy,md5sum", "--repetitions", "2", path=path)
    assert run_.code == 1
    assert run_.outcomes("here")["copy"] == ("not reached", f"the image {gone} is gone")
