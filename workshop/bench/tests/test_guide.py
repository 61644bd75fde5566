"""The charts of the guide's page on moving images: those of the published tables, and what parts that are not measured yet will have."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

import pytest

from bench.harness.figures import Metric
from bench.remote import compressed, contents, receivers
from bench.report import grid, guide, pages
from bench.tools import transfer


def published() -> dict[str, str]:
    """The pages of the results, by part."""
    return {page.part.key: page.text for page in pages.pages()}


def read(path: str) -> str:
    """The text of a file."""
    with open(path, encoding="utf-8") as file:
        return file.read()


def test_the_charts_of_the_guide_are_those_of_the_pages() -> None:
    drawn = guide.drawings(published())
    assert drawn and [path for path, drawing in drawn.items() if read(path) != drawing] == []


def test_the_guide_shows_each_chart_that_there_is_and_no_other() -> None:
    shown = re.findall(r"\]\(\.\./images/(move-[^)]+)\)", read(guide.GUIDE))
    assert sorted(shown) == sorted(map(os.path.basename, guide.drawings(published())))


def test_a_table_has_figures_with_spreads_thousands_and_bold_ones() -> None:
    page = "Other:\n\n| | a |\n|---|---|\n| x | 9 |\n\nHere (s):\n\n| | a | b |\n|---|---|---|\n"
    page += "| cat \\| nc | 1.50 [1.00 – 2.00] | **12 300** |\n| dd |  | 3 |\n\n| y | 4 |\n"
    found = guide.table(page, "Here")
    assert found.point("cat | nc", "a") == guide.Point(1.5, 1.0, 2.0)
    assert found.point("cat | nc", "b") == guide.Point(12300, 12300, 12300)
    assert found.point("dd", "a") is None and found.point("y", "a") is None and found.point("x", "a") is None
    assert guide.table(page, "There").cells == {}


def page_of(part: str, group: str, columns: Sequence[str], names: Sequence[str], metrics: Sequence[Metric]) -> str:
    """The page of a part with this group."""
    sample = {metric.key: 1.0 for metric in metrics}
    found = []
    for column in columns:
        found += grid.figures(part, group, column, {name: [sample] for name in names}, metrics)
    return "\n".join(grid.report(part)(found))


def test_parts_that_are_not_measured_yet_have_what_their_questions_show(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(grid, "PLOTS_DIR", str(tmp_path))
    ways = [pipe.name for pipe in transfer.PIPES] + [f"cheetah acquire ({method})" for method in contents.METHODS]
    ends = [pipe.name for pipe in receivers.RECEIVERS] + [receivers.OURS]
    files = [f"cat .{one.suffix} | nc" for one in compressed.COMPRESSORS] + ["in flight: cheetah acquire"]
    received = [
        page_of(receivers.PART, f"To {disk}", receivers.CACHES, ends, receivers.METRICS)
        for disk in receivers.disks.DISKS
    ]
    machines, link = f"Between two machines, {receivers.disks.FAST}", f"Sending over {list(compressed.LINKS)[0]}"
    found = {
        contents.PART: page_of(contents.PART, machines, ("random, 1GiB",), ways, contents.SENT),
        receivers.PART: "\n".join(received),
        compressed.PART: page_of(compressed.PART, link, ("zeroed",), files, compressed.SENT),
    }
    drawn = guide.drawings(found)
    assert {os.path.basename(path) for path in drawn} == {
        f"move-{question.name}.svg" for question in guide.QUESTIONS if question.page in found
    }


@pytest.mark.parametrize("question", guide.QUESTIONS, ids=lambda question: question.name)
def test_each_question_is_about_a_part_of_the_benchmark(question: guide.Question) -> None:
    assert question.page in {part.key for part in pages.PARTS} and question.rows and question.columns
