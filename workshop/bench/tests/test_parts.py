"""Every part of the benchmark can be started, and every section of the report says something."""

from __future__ import annotations

import importlib
import math
import os
import pkgutil
import re
import shutil

import pytest

import bench
from bench import results_md
from bench.probe import stand
from bench.report import overview, pages, storage_tables
from bench.report.overview import Mark, Strip
from cheetah.bench.figure import Figure
from lab import relay

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
MADE = tuple(
    os.path.join(ROOT, name)
    for name in (
        "target",
        "workshop/bench/out",
        "workshop/bench/RESULTS.md",
        "workshop/bench/results",
        "workshop/bench/plots",
        "workshop/bench/guard/history.tsv",
    )
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
        if relay.real_time_prefix():
            assert made.program("raw", asked).count("\n") >= asked.packets


def test_the_readme_describes_each_part() -> None:
    with open(pages.README, encoding="utf-8") as file:
        text = file.read()
    assert [part.key for part in results_md.PARTS if f"`{part.key}`" not in text] == []


def test_each_page_of_the_published_results_has_a_row() -> None:
    found = pages.pages()
    assert [page.part.key for page in found if not re.search(r"^\| .*\d", page.text, re.M)] == []
    assert [page.part.key for page in found if not page.text.startswith(f"# {page.part.title}\n")] == []
    there = {name.removesuffix(".md") for name in os.listdir(pages.PAGES_DIR)}
    assert there == {page.part.key for page in found} | {pages.MACHINE}


# A row of a page that has a bar: what, whether it is met, and the reason.
BARRED = re.compile(r"^\| (?P<what>.*?) \| .* \| [≥≤] [\d.e-]+ \| (?P<met>yes|\*\*no\*\*) \| (?P<why>.*) \|$", re.M)


@pytest.mark.parametrize("page", pages.pages(), ids=lambda page: page.part.key)
def test_each_missed_bar_of_a_page_has_a_reason_and_no_other(page: pages.Page) -> None:
    rows = list(BARRED.finditer(page.text))
    assert [row["what"] for row in rows if (row["met"] == "yes") == bool(row["why"].strip())] == []


@pytest.mark.parametrize(("ours", "said"), [(1.0, False), (3.0, True)])
def test_a_reason_is_given_only_where_the_bar_is_missed(ours: float, said: bool) -> None:
    figure = Figure("x/1", "delay", "ms", "ours", {"ours": [ours], "allowed": [2.0]}, "lower", 1.0)
    assert ("it is far" in results_md.row(figure, "it is far")) == said


def test_a_reason_is_given_where_nothing_was_measured() -> None:
    figure = Figure("x/1", "delay", "ms", "ours", {"allowed": [2.0]}, "lower", 1.0)
    assert "it is far" in results_md.row(figure, "it is far")


def sections(text: str) -> dict[str, str]:
    """The sections of a page by their titles, of any depth; a title alone belongs to the sections below it."""
    found = re.split(r"^#+ (.*)$", text, flags=re.M)[1:]
    return {title: body for title, body in zip(found[::2], found[1::2], strict=True) if body.strip()}


@pytest.mark.parametrize("page", pages.pages(), ids=lambda page: page.part.key)
def test_each_section_of_a_page_has_a_row_unless_it_is_written_by_hand(page: pages.Page) -> None:
    with open(storage_tables.MORE, encoding="utf-8") as file:
        by_hand = sections(file.read())
    found = {title: body for title, body in sections(page.text).items() if title not in by_hand}
    assert found and [title for title, body in found.items() if not re.search(r"^\| .*\d", body, re.M)] == []


def test_the_summary_is_that_of_the_pages_and_fits_on_a_screen() -> None:
    with open(pages.SUMMARY, encoding="utf-8") as file:
        text = file.read()
    assert text == pages.summary(pages.pages())
    assert text.count("\n") < 60
    linked = re.findall(r"\]\(((?:results|plots)/[^)]+)\)", text)
    assert linked and [path for path in linked if not os.path.exists(os.path.join(results_md.BENCH, path))] == []


def test_the_chart_of_the_summary_is_that_of_the_pages() -> None:
    with open(pages.OVERVIEW, encoding="utf-8") as file:
        assert file.read() == pages.chart(pages.pages())


def test_a_figure_is_shown_as_a_multiple_of_its_bar() -> None:
    row = "| {} (s) | 1 | 2 peer | **{}** [0.1 – 9] | {} {} | {} | |\n"
    rows = [("a", "3.00", "≥", "1.5", "yes"), ("b", "0.50", "≤", "0.25", "**no**"), ("c", "0.00", "≥", "1", "**no**")]
    text = "".join(row.format(*one) for one in rows) + "| d (s) | 1 | 2 peer | **9.00** [1 – 9] |  |  |  |\n"
    # A ratio that is rounded to zero stands at an edge.
    text += row.format("e", "0.00", "≤", "1", "yes")
    assert overview.marks_of(text) == [Mark(2.0, True), Mark(0.5, False), Mark(0.0, False), Mark(math.inf, True)]
    drawing = overview.render(
        [Strip("A `title`", [Mark(2.0, True), Mark(0.5, False), Mark(math.inf, True), Mark(0.0, False)])]
    )
    assert drawing.count(f'fill="{overview.MET}"') == drawing.count(f'fill="{overview.MISSED}"') == 2
    assert ">A title<" in drawing


def test_equal_candidates_are_the_first_row_of_a_part_without_ratios() -> None:
    text = "# T\n\n*2026-01-02, 3 rounds, x.*\n\n| what | one | two |\n|---|---|---|\n| a (s) | 1.0 | 2.0 |\n| b (s) | 3 | 4 |\n"
    assert "| a (s): one 1.0, two 2.0 |" in pages.Page(results_md.PARTS[0], text).row()


def test_the_charts_and_texts_that_pages_link_to_exist() -> None:
    for page in pages.pages():
        for path in re.findall(r"\]\((\.\./[^)#]+)", page.text):
            assert os.path.exists(os.path.join(pages.PAGES_DIR, path)), f"{page.part.key}: {path}"


def test_the_readme_names_the_rounds_that_were_run() -> None:
    with open(pages.README, encoding="utf-8") as file:
        text = file.read()
    assert text == pages.with_rounds(text, pages.pages())
    assert [page.part.key for page in pages.pages() if page.rounds == 0] == []


def test_parts_without_a_page_are_named_and_a_quick_run_is_marked() -> None:
    done, other = results_md.PARTS[0], results_md.PARTS[1]
    text = f"# {done.title}\n\n*2026-01-02T03:04, 3 rounds, x.* **A quick run: not to be quoted.**\n\n"
    text += "| a, b (MiB/s) | 1 | 2 peer | **0.50** [0.5 – 0.5] | ≥ 1 | **no** | |\n"
    lines = pages.summary([pages.Page(done, text)]).splitlines()
    assert f"| [{done.title}](results/{done.key}.md) | 0 of 1 | 0.50 × a, b | 3, quick | 2026-01-02 |" in lines
    assert any(line.startswith("Not measured yet: ") and other.title in line for line in lines)


def test_a_note_that_a_table_has_is_not_repeated() -> None:
    part = results_md.Part("x", "Title", "About.", lambda _: ["A table's note.", ""])
    figures = [
        Figure(f"x/{note}", "delay", "ms", "ours", {"ours": [1.0]}, note=note)
        for note in ("A table's note.", "Another.")
    ]
    content = {"finished": "2026", "rounds": 3, "machine": {"cheetah": "0"}, "quick": False, "figures": figures}
    lines = results_md.page(part, content, {})
    assert [lines.count(note) for note in ("A table's note.", "Another.")] == [1, 1]


def test_equal_candidates_without_a_table_of_their_own_have_rows() -> None:
    part = results_md.Part("x", "Title", "About.")
    figure = Figure("x/1", "delay 0 ms", "MiB/s", None, {"one": [1.0, 2.0, 3.0], "two": [4.0]})
    content = {"finished": "2026", "rounds": 3, "machine": {"cheetah": "0"}, "quick": False, "figures": [figure]}
    lines = results_md.page(part, content, {})
    assert "| what | one | two |" in lines
    assert any(line.startswith("| delay 0 ms (MiB/s) | 2") for line in lines)
