"""What `cheetah run` does at a worker, where no source is really mounted."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import PATIENCE_S

from cheetah.run import at_worker
from cheetah.run.at_worker import Job, Mount, Place
from cheetah.run.parts import ALIGNMENT_BYTES

SIZE_BYTES = 3 * ALIGNMENT_BYTES
# Makes a file in place of a mount, and says that it is ready, behind the lines that are printed before.
MOUNT = """#!/bin/sh
truncate -s {size} "$4/disk.raw"
{before}
echo '{{"event": "ready", "file": "disk.raw"}}'
exec sleep 1000
"""


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Has sources mounted by a program that makes a file, and prints something before."""
    if not shutil.which("setpriv"):
        pytest.skip("needs setpriv")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(at_worker, "READY_S", PATIENCE_S)
    program = tmp_path / "mounting"

    def printing(before: str) -> None:
        program.write_text(MOUNT.format(size=SIZE_BYTES, before=before))
        program.chmod(0o755)
        monkeypatch.setenv("CHEETAH_BINARY", str(program))

    printing("")
    return printing


def job(*command: str) -> Job:
    """A run of a program."""
    return Job("0" * 16, "/cases/disk.raw", SIZE_BYTES, command)


def test_a_mount_appends_to_its_log_after_the_offset_that_it_writes_with_was_moved(
    mounts: Callable[[str], None], tmp_path: Path
) -> None:
    # As a reader does that shares the offset.
    mounts(f"echo first; {shlex.quote(sys.executable)} -c 'import os; os.lseek(1, 0, 0)'; echo second")
    folder = tmp_path / "run"
    folder.mkdir()
    Mount(job(), str(folder)).end()
    assert (folder / "mount.log").read_text().splitlines()[:-1] == ["first", "second"]


@pytest.mark.usefixtures("mounts")
def test_a_run_that_ends_while_its_programs_do_unmounts_and_removes_its_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = Place(job())
    threads: dict[int, threading.Thread] = {}
    all_run = threading.Barrier(5)

    def program() -> None:
        with place.busy(), place.started(["sleep", "1000"]) as process:
            threads[process.pid] = threading.current_thread()
            all_run.wait(PATIENCE_S)
            process.wait()

    running = [threading.Thread(target=program) for _ in range(4)]
    for thread in running:
        thread.start()
    all_run.wait(PATIENCE_S)
    kill = os.killpg

    def slow(group: int, number: int) -> None:
        # Time for the thread to notice, which changes the set of programs as soon as it may.
        kill(group, number)
        threads[group].join(0.2)

    monkeypatch.setattr(os, "killpg", slow)
    place.end()
    for thread in running:
        thread.join(PATIENCE_S)
    assert not os.path.exists(place.folder)
    with pytest.raises(OSError, match=at_worker.ENDED), place.started(["true"]):
        pass
