"""Helpers for tests of targets: privileges, and checks for leftovers of a run."""

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import PATIENCE_S

from cheetah.bench.storage.targets import mounts

CAP_SYS_ADMIN = 21


def as_root() -> None:
    """Skips without root."""
    if os.geteuid() != 0:
        pytest.skip("needs root, for loop devices and mounting")
    capabilities = int(Path("/proc/self/status").read_text().partition("CapEff:")[2].split()[0], 16)
    if not capabilities >> CAP_SYS_ADMIN & 1 or not Path("/dev/loop-control").exists():
        pytest.skip("needs loop devices and the right to mount, which a container may lack")


def with_fuse() -> None:
    """Skips without root and FUSE."""
    as_root()
    if not Path("/dev/fuse").exists():
        pytest.skip("needs /dev/fuse")


@pytest.fixture(name="own_tmp")
def _own_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for temporary files of this test and its processes."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def left(folder: Path) -> list[str]:
    """Returns mounts, loop devices and processes of a directory for temporary files."""
    found = [f"mounted: {point}" for point in mounts.below(folder)]
    found += [f"{name}: {file}" for name, file in mounts.loops().items() if str(folder) in file or _ours(folder, file)]
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with contextlib.suppress(OSError):
            if pid != os.getpid() and b"TMPDIR=" + os.fsencode(folder) in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(f"process {pid}: {Path(f'/proc/{pid}/cmdline').read_bytes()!r}")
    return found


def _ours(folder: Path, file: str) -> bool:
    """Returns whether a loop device's file was in a work directory there, whose name is part of the file's."""
    return any(one.name in file for one in folder.glob("cheetah-bench-*"))


def nothing_left(folder: Path) -> bool:
    """Waits until nothing is left; processes take a moment to end."""
    return soon(lambda: not left(folder))


def soon(true: Callable[[], bool]) -> bool:
    """Waits until a condition is true; returns False when patience ends."""
    until = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def names(folder: Path) -> Iterator[str]:
    """All that is in a folder."""
    yield from sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
