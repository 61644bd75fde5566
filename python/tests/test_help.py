"""The help pages of `triage` and `bench`, errors of the command line, and output that cannot be written."""

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import PATIENCE_S

from cheetah import options
from cheetah.bench.storage.options import command
from cheetah.triage import cli as triage


def flags(*parsers: options.Parser) -> set[str]:
    """The options of some parsers."""
    return {name for parser in parsers for action in parser._actions for name in action.option_strings}


def on_page(package: str) -> set[str]:
    """The options at the beginning of a line of a help page."""
    found = re.findall(r"^  (?:(-\w), )?(--?[\w-]+)", options.page(package), re.MULTILINE)
    return {name for pair in found for name in pair if name}


def test_triage_help_names_every_option_and_no_other() -> None:
    assert on_page("cheetah.triage") == flags(triage._parser())


def test_bench_help_names_every_option_and_no_other() -> None:
    assert on_page("cheetah.bench") == flags(command._parser())


@pytest.mark.parametrize("package", ["cheetah.triage", "cheetah.bench"])
def test_a_help_page_fits_80_columns(package: str) -> None:
    assert [line for line in options.page(package).splitlines() if len(line) > 80] == []


def ran(*words: str | Path) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", *map(str, words)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.mark.parametrize(
    "words", [["cheetah.triage", "-h"], ["cheetah.bench", "--help"], ["cheetah.bench", "storage", "--help"]]
)
def test_help_is_the_page(words: list[str]) -> None:
    assert ran(*words).stdout == options.page(words[0])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["cheetah.triage", "disk.raw", "--out", "out", "--quik"], "a similar argument exists: '--quick'"),
        (["cheetah.triage", "disk.raw", "--out", "out", "--keyword=x"], "a similar argument exists: '--keywords'"),
        (["cheetah.triage", "--quik", "disk.raw"], "a similar argument exists: '--quick'"),
        (["cheetah.bench", "stroage", "."], "a similar part exists: 'storage'"),
        (["cheetah.bench", "storage", ".", "--rep", "3"], "a similar argument exists: '--repetitions'"),
        (["cheetah.bench", "storage", ".", "--quik"], "a similar argument exists: '--quick'"),
        (["cheetah.bench", "storage", ".", "--steps", "md5sun"], "a similar step exists: 'md5sum'"),
        (["cheetah.bench", "compare", "a", "b", "--jsn"], "a similar argument exists: '--json'"),
    ],
)
def test_a_typing_error_gets_a_suggestion(words: list[str], said: str) -> None:
    done = ran(*words)
    assert done.returncode == 2, done
    assert done.stderr.startswith("error: ") and said in done.stderr and "Traceback" not in done.stderr


def test_an_option_cannot_be_abbreviated() -> None:
    assert ran("cheetah.triage", "disk.raw", "--out", "out", "--qui").returncode == 2


def test_a_refused_argument_is_json_with_json() -> None:
    done = ran("cheetah.triage", "disk.raw", "--out", "out", "--quik", "--json")
    answer = json.loads(done.stdout)
    assert answer["exit_code"] == 2 and "'--quik'" in answer["error"] and "'--quick'" in answer["error"]


def test_an_error_cannot_move_the_cursor(tmp_path: Path) -> None:
    done = ran("cheetah.triage", f"{tmp_path}/no\x1b[2Jthing", "--out", tmp_path / "out")
    assert done.returncode == 1 and "\x1b" not in done.stderr and "⟨U+001B⟩" in done.stderr


def test_an_unknown_scheme_is_misuse(tmp_path: Path) -> None:
    assert ran("cheetah.triage", "gopher://host/disk", "--out", tmp_path / "out").returncode == 2


@pytest.fixture(name="to")
def _to() -> Callable[..., int]:
    """Runs a module with its output redirected by a shell; its exit code."""

    def run(redirected: str, *words: str | Path) -> int:
        argv = ["sh", "-c", f'exec "$@" {redirected}', "sh", sys.executable, "-m", *map(str, words)]
        return subprocess.run(argv, timeout=PATIENCE_S, check=False, stdout=subprocess.DEVNULL).returncode

    return run


@pytest.mark.parametrize("redirected", ["2>/dev/full", "2>&-", ">/dev/full", ">&-", ">&- 2>&- <&-"])
def test_a_full_or_closed_output_does_not_fail_a_good_run(
    redirected: str, to: Callable[..., int], ext4: Path, tmp_path: Path
) -> None:
    assert to(redirected, "cheetah.bench", "--help") == 0
    assert to(redirected, "cheetah.triage", ext4, "--out", tmp_path / "out", "--workers", "1") == 0
    assert (tmp_path / "out/report.html").is_file()


def test_a_stderr_that_is_not_read_does_not_hold_up_a_run(ext4: Path, tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    try:
        os.set_blocking(write_end, False)
        with contextlib.suppress(BlockingIOError):
            while os.write(write_end, bytes(4096)):
                pass
        os.set_blocking(write_end, True)
        argv = [sys.executable, "-m", "cheetah.triage", str(ext4), "--out", str(tmp_path / "out"), "--workers", "1"]
        done = subprocess.run(argv, stderr=write_end, stdout=subprocess.PIPE, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0 and b"report.html" in done.stdout
    finally:
        os.close(read_end)
        os.close(write_end)


def test_a_closed_pipe_does_not_fail_a_good_run(ext4: Path, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "cheetah.triage", str(ext4), "--out", str(tmp_path / "out"), "--workers", "1"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as done:
        assert done.stdout is not None and done.stderr is not None
        done.stdout.close()
        done.stderr.close()
        assert done.wait(PATIENCE_S) == 0
