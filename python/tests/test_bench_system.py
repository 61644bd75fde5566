"""What differs by system in benchmarks: both systems have the same names, and the tasks that Python does on Windows are right."""

import ast
import hashlib
import importlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import pytest
from conftest import MIB, PATIENCE_S, ROOT

from cheetah.bench import system
from cheetah.bench.system.windows import worker

FOLDER = ROOT / "python/cheetah/bench/system"
WORKER = FOLDER / "windows/worker.py"


def public(path: Path) -> set[str]:
    """Returns the names that a module offers to others."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
            case ast.ImportFrom(names=names):
                found.update(alias.name for alias in names)
    return {name for name in found if not name.startswith("_")}


def used(module: str) -> set[str]:
    """Returns the names of a module that the benchmarks use."""
    found = set()
    for path in (ROOT / "python/cheetah/bench").rglob("*.py"):
        if path.is_relative_to(FOLDER):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imports = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module == "cheetah.bench.system"
            for alias in node.names
        }
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == module in imports
            ):
                found.add(node.attr)
    return found


@pytest.mark.parametrize("module", system.__all__)
def test_both_systems_have_all_names_that_are_used(module: str) -> None:
    wanted = used(module)
    for folder in ("linux", "windows"):
        missing = wanted - public(FOLDER / folder / f"{module}.py")
        assert not missing, f"{folder}/{module}.py lacks {missing}"


def work(*words: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Has the program for Windows do a task here."""
    argv = [sys.executable, "-I", "-S", str(WORKER), *map(str, words)]
    return subprocess.run(argv, input="\n", cwd=cwd, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_a_task_of_windows_copies_and_hashes_every_byte(tmp_path: Path) -> None:
    source, copied = tmp_path / "source", tmp_path / "copied"
    content = os.urandom(3 * MIB + 17)
    source.write_bytes(content)
    assert work("copy", source, copied).returncode == 0
    assert copied.read_bytes() == content
    for name in ("md5", "sha256"):
        done = work("digest", name, copied)
        assert done.stdout == f"{hashlib.new(name, content).hexdigest()}  copied\n"
        assert done.stderr == "ready\n"


def test_a_task_of_windows_that_fails_says_which_file_it_was_about(tmp_path: Path) -> None:
    done = work("copy", tmp_path / "gone", tmp_path / "copied")
    assert done.returncode == 1 and f"{tmp_path / 'gone'}: No such file" in done.stderr


@pytest.fixture(name="flushed")
def _flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A folder `files`, of which `deep/new` was changed after `since`; and the files that are flushed."""
    found: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda number: found.append(os.readlink(f"/proc/self/fd/{number}")))
    since, files = tmp_path / "since", tmp_path / "files"
    (files / "deep").mkdir(parents=True)
    for path in (since, files / "old", files / "deep/new"):
        path.touch()
    (files / "link").symlink_to(tmp_path / "nowhere")
    # All files here were made just now.
    for path, ahead_s in ((since, 1000), (files / "deep/new", 1001)):
        os.utime(path, (time.time() + ahead_s,) * 2)
    return found


def test_a_task_of_windows_flushes_what_was_changed_and_passes_over_links(tmp_path: Path, flushed: list[str]) -> None:
    worker.flush(str(tmp_path / "files"), str(tmp_path / "since"))
    assert flushed == [str(tmp_path / "files/deep/new")]


def test_a_task_of_windows_counts_files_that_it_may_not_flush(
    tmp_path: Path, flushed: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(number: int) -> None:
        flushed.append(str(number))
        raise PermissionError

    monkeypatch.setattr(os, "fsync", refuse)
    worker.flush(str(tmp_path / "files"), str(tmp_path / "since"))
    assert len(flushed) == 1 and capsys.readouterr().err.endswith("flushed: 1\n")


def test_a_program_in_the_current_folder_is_found_on_windows_only_if_that_is_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "cheetah.bench.system.windows.programs"
    monkeypatch.setitem(sys.modules, f"{name.rpartition('.')[0]}.kernel32", mock.Mock())
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setenv("NoDefaultCurrentDirectoryInExePath", "")
    programs = importlib.import_module(name)
    monkeypatch.delitem(sys.modules, name)
    monkeypatch.chdir(tmp_path)
    # As Python 3.11 does on Windows.
    monkeypatch.setattr(shutil, "which", lambda tool: os.path.join(os.curdir, tool))
    monkeypatch.setenv("PATH", "/usr/bin")
    assert programs.found("fio") is None
    monkeypatch.setenv("PATH", f"/usr/bin{os.pathsep}{tmp_path}")
    assert programs.found("fio") == "./fio"
    assert os.environ["NoDefaultCurrentDirectoryInExePath"] == "1"


def test_a_task_of_windows_is_not_done_if_the_parent_ends_before(tmp_path: Path) -> None:
    source, copied = tmp_path / "source", tmp_path / "copied"
    source.write_bytes(b"x")
    argv = [sys.executable, "-I", "-S", str(WORKER), "copy", str(source), str(copied)]
    subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S, check=True)
    assert not copied.exists()
