"""`make test` runs every part of the test suite, and sums up."""

import os
import subprocess
from pathlib import Path

from conftest import ROOT

RUST = """test one ... ok
test two ... FAILED
test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s
"""
PYTHON = "=================== 3 passed, 1 skipped in 1.25s ===================\n"


def outcome(tmp_path: Path, results: dict[str, tuple[str, int]]) -> tuple[str, int]:
    """What the targets print and return if they say this, and the exit code."""
    for target, (said, _) in results.items():
        (tmp_path / target).write_text(said)
    codes = " ".join(f"{target}) exit {code};;" for target, (_, code) in results.items())
    made = tmp_path / "make"
    made.write_text(f'#!/bin/sh\ncat "{tmp_path}/$2"\ncase $2 in {codes} esac\n')
    made.chmod(0o755)
    argv = [ROOT / "scripts/test-all", *results]
    done = subprocess.run(
        argv, env={**os.environ, "MAKE": str(made)}, capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout, done.returncode


def test_a_part_that_fails_does_not_keep_the_next_from_running(tmp_path: Path) -> None:
    said, code = outcome(tmp_path, {"test-rust": (RUST, 2), "test-python": (PYTHON, 0)})
    assert code != 0 and PYTHON.strip() in said
    assert said.splitlines()[-2:] == ["failed: two", "4 passed, 1 failed, 1 skipped"]


def test_parts_that_pass_are_counted_together(tmp_path: Path) -> None:
    said, code = outcome(
        tmp_path,
        {"test-rust": (RUST.replace("FAILED", "ok").replace("1 failed", "0 failed"), 0), "test-python": (PYTHON, 0)},
    )
    assert (code, said.splitlines()[-1]) == (0, "4 passed, 0 failed, 1 skipped")


def test_a_build_that_fails_is_a_failure(tmp_path: Path) -> None:
    said, code = outcome(tmp_path, {"test-rust": ("error: could not compile\n", 2), "test-python": (PYTHON, 0)})
    assert code != 0 and said.splitlines()[-1] == "3 passed, 1 failed, 1 skipped"
