"""The command line of the benchmarks: its Python, its parts, and where figures go."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

from bench import results_md
from bench.report import store
from cheetah.bench.figure import Figure

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
RUN = os.path.join(ROOT, "workshop/bench/run")


def without_packages(run: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs `workshop/bench/run` with these arguments in a Python without packages."""
    argv = [sys.executable, "-S", run, *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def test_it_restarts_in_a_python_with_the_package() -> None:
    if not os.path.exists(os.path.join(ROOT, "target/venv/bin/python")):
        pytest.skip("needs target/venv (scripts/python-env)")
    done = without_packages(RUN, "--parts")
    assert done.returncode == 0, done.stderr
    assert [part["part"] for part in json.loads(done.stdout)] == [part.key for part in results_md.PARTS]


def test_without_the_package_it_says_what_to_do(tmp_path) -> None:
    os.makedirs(tmp_path / "workshop/bench")
    shutil.copy(RUN, tmp_path / "workshop/bench/run")
    done = without_packages(str(tmp_path / "workshop/bench/run"), "--parts")
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "scripts/python-env makes it" in done.stderr


def test_all_parts_are_those_that_do_not_take_hours() -> None:
    short = results_md.chosen("all")
    assert "node" in short and "storage" in short and "thesis-table" not in short
    assert results_md.chosen("thesis-table") == ["thesis-table"]


def test_figures_go_to_the_named_directory(tmp_path, monkeypatch) -> None:
    class Asked:
        quick, rounds = True, 3

    published = store.load("node")
    monkeypatch.setattr(store.Folder, "path", str(tmp_path))
    figure = Figure("node/x", "x", "s", "cheetah", {"cheetah": [1.0]})
    store.save("node", Asked, {"kernel": "6"}, [figure])
    with open(tmp_path / "node.json", encoding="utf-8") as file:
        assert Figure.from_json(json.load(file)["figures"][0]) == figure
    assert store.load("node") == published
