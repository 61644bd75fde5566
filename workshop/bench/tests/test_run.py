"""The command line of the benchmarks: its Python, its parts, and where figures go."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys

import pytest

from bench import results_md
from bench.report import store
from cheetah.bench.failure import BenchError
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


def test_only_a_part_with_cases_takes_words_of_their_names() -> None:
    argv = [sys.executable, RUN, "node", "--only", "4 nodes"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "thesis-table" in done.stderr


@dataclasses.dataclass(frozen=True)
class Asked:
    """What a measurement was asked for."""

    rounds: int
    only: str = ""
    quick: bool = False


def made(key: str, value: float) -> Figure:
    """A figure with one sample."""
    return Figure(key, key, "s", "cheetah", {"cheetah": [value]})


def test_figures_of_other_cases_stay_and_the_least_rounds_are_said(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(store.Folder, "path", str(tmp_path))
    machine = {"kernel": "6", "cheetah": "tree at 1"}
    store.save("arrays", Asked(5), machine, [made("a", 1.0), made("b", 2.0)], "1f")
    later = {**machine, "cheetah": "tree at 2"}
    store.save("arrays", Asked(3, "b"), later, [made("b", 3.0), made("c", 4.0)], "1f")
    with open(tmp_path / "arrays.json", encoding="utf-8") as file:
        content = json.load(file)
    found = {figure["id"]: figure["samples"]["cheetah"] for figure in content["figures"]}
    assert found == {"a": [1.0], "b": [3.0], "c": [4.0]}
    assert (content["rounds"], content["machine"]["cheetah"]) == (3, "tree at 2")
    store.save("arrays", Asked(1), machine, [made("a", 1.0)], "1f")
    with open(tmp_path / "arrays.json", encoding="utf-8") as file:
        assert len(json.load(file)["figures"]) == 1, "all cases replace all figures"


@pytest.mark.parametrize(
    ("machine", "program", "quick", "said"),
    [
        ({"kernel": "7"}, "1f", False, "machine"),
        ({"kernel": "6"}, "2e", False, "program"),
        ({"kernel": "6"}, "1f", True, "quick"),
    ],
)
def test_figures_are_not_added_to_those_of_other_conditions(
    tmp_path, monkeypatch, machine: dict[str, str], program: str, quick: bool, said: str
) -> None:
    monkeypatch.setattr(store.Folder, "path", str(tmp_path))
    store.save("arrays", Asked(5), {"kernel": "6"}, [made("a", 1.0)], "1f")
    with pytest.raises(BenchError, match=f"another {said}"):
        store.kept("arrays", Asked(5, "b", quick), machine, program)
    assert store.kept("arrays", Asked(5, quick=quick), machine, program) is None, "all cases need nothing of them"
    assert store.kept("iozone", Asked(5, "b"), machine, program) is None, "there is nothing yet"


def test_figures_go_to_the_named_directory(tmp_path, monkeypatch) -> None:
    published = store.load("node")
    monkeypatch.setattr(store.Folder, "path", str(tmp_path))
    figure = Figure("node/x", "x", "s", "cheetah", {"cheetah": [1.0]})
    store.save("node", Asked(3, quick=True), {"kernel": "6"}, [figure])
    with open(tmp_path / "node.json", encoding="utf-8") as file:
        assert Figure.from_json(json.load(file)["figures"][0]) == figure
    assert store.load("node") == published
