"""Every part of the benchmark can be started, and every section of the report says something."""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import shutil

import pytest

import bench
from bench import results_md
from bench.probe import stand
from cheetah.bench.figure import Figure

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MADE = tuple(
    os.path.join(ROOT, name)
    for name in ("target", "bench/out", "bench/RESULTS.md", "bench/plots", "bench/guard/history.tsv")
)
"""What a build or a run makes."""


def modules() -> list[str]:
    """Every module of the benchmarks, but for their tests."""
    found = [one.name for one in pkgutil.walk_packages(bench.__path__, "bench.")]
    return [name for name in found if ".tests" not in name]


@pytest.mark.parametrize("key", [part.key for part in results_md.PARTS])
def test_each_part_has_a_module_that_measures_it(key: str) -> None:
    assert callable(importlib.import_module(results_md.module_of(key)).measure)


@pytest.mark.parametrize("name", modules())
def test_each_path_that_a_module_names_in_the_checkout_exists(name: str) -> None:
    for constant, value in vars(importlib.import_module(name)).items():
        if isinstance(value, str) and value.startswith(ROOT + os.sep) and not constant.startswith("__"):
            assert value.startswith(MADE) or os.path.exists(value), f"{name}.{constant} = {value}"


def test_the_stand_of_the_probe_is_set_up_and_its_programs_send() -> None:
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "tc", "cargo", "setpriv"))):
        pytest.skip("needs root, ip, tc, setpriv and cargo")
    with stand.stand() as made:
        assert os.access(stand.packets_program(), os.X_OK)
        asked = stand.TrainRequest(10, 1_000_000, 1)
        assert made.program("mmsg", asked) is not None


def test_each_section_of_the_published_results_has_a_row() -> None:
    with open(results_md.RESULTS, encoding="utf-8") as file:
        sections = file.read().split("\n## ")[1:]
    empty = [text.split("\n", 1)[0] for text in sections if not re.search(r"^\| .*\d", text, re.M)]
    assert empty == []
    assert {text.split("\n", 1)[0] for text in sections} == {part.title for part in results_md.PARTS}


def test_equal_candidates_without_a_table_of_their_own_have_rows() -> None:
    part = results_md.Part("x", "Title", "About.")
    figure = Figure("x/1", "delay 0 ms", "MiB/s", None, {"one": [1.0, 2.0, 3.0], "two": [4.0]})
    content = {"finished": "2026", "rounds": 3, "machine": {"cheetah": "0"}, "quick": False, "figures": [figure]}
    lines = results_md.section(part, content, {})
    assert "| what | one | two |" in lines
    assert any(line.startswith("| delay 0 ms (MiB/s) | 2") for line in lines)
