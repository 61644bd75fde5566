"""Each figure that the documentation states of speed points to its row in the published results."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator

import pytest

from bench.report import pages, worth

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
CLAIM = re.compile(
    r"\d[\d,.]*\s(?:[KMGT]i?B/s|[KMG]i?B\sa\ssecond|(?:files|reads|writes|requests|packets)\sa\ssecond)"
    r"|\d[\d,.]*\s(?:×|times\s(?:as|faster|slower|longer))"
    r"|\b(?:twice|half|third|quarter|tenth)\s(?:as|the)\s(?:fast|slow|long|rate)"
)
# A claim that is a rate, rather than a ratio, which may be calculated.
RATE = re.compile(
    r"(?P<number>\d[\d,.]*)\s(?:[KMGT]i?B/s|[KMG]i?B\sa\ssecond|(?:files|reads|writes|requests|packets)\sa\ssecond)"
)
# Rates of disks that nobody measured here.
OF_MAKERS = {f"{rate:,} MB/s" for rate in worth.DISKS_MB_PER_S.values()}
# A link to a page of the results; its title is the beginning of a row.
LINK = re.compile(r'\]\([^)\s"]*workshop/bench/results/(?P<page>[\w-]+)\.md(?:\s"(?P<row>[^"]*)")?\)')
# Sections whose figures are no results of the benchmark.
OTHER = {
    ("docs/design/cost.md", "Cost of a request"): "why the code is as it is; each says how it was measured",
    ("docs/guide/bench.md", "Models of disks"): "the rate of a drive that is modelled",
    ("docs/guide/move-an-image.md", "Not measured yet"): "the rate of a disk",
}


def sections(text: str) -> Iterator[tuple[str, str]]:
    """Yields the heading and the text of each section, without blocks of code."""
    plain = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    for section in re.split(r"^(?=#+ )", plain, flags=re.MULTILINE):
        heading, _, rest = section.partition("\n")
        yield (heading.lstrip("# "), rest) if heading.startswith("#") else ("", section)


def documents() -> list[str]:
    """Returns the pages that users and developers read."""
    found = glob.glob("docs/**/*.md", root_dir=ROOT, recursive=True)
    return sorted([*found, "README.md", "ARCHITECTURE.md", "SECURITY.md"])


def read(path: str) -> str:
    """Returns the text of a file of the project."""
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def rows_of(page: str) -> list[str]:
    """Returns the first cells of the tables of a page."""
    return [line.split(" | ")[0].removeprefix("| ") for line in page.splitlines() if line.startswith("| ")]


@pytest.mark.parametrize("path", documents())
def test_a_section_with_a_figure_of_speed_points_to_a_row(path: str) -> None:
    for heading, text in sections(read(path)):
        claims = [found[0] for found in CLAIM.finditer(text)]
        if claims and (path, heading) not in OTHER:
            linked = [link["row"] for link in LINK.finditer(text)]
            assert any(linked), f"{path}, {heading}: no link with a row as its title says where {claims} come from"


def linked_rows(text: str) -> str:
    """Returns the rows that a text points to, without the marks between thousands."""
    found = []
    for link in LINK.finditer(text):
        page = read(os.path.join(pages.PAGES_DIR, f"{link['page']}.md"))
        found += [line for line in page.splitlines() if link["row"] and line.startswith(f"| {link['row']}")]
    return re.sub(r"[ ,]", "", "\n".join(found))


@pytest.mark.parametrize("path", documents())
def test_a_rate_is_in_a_row_that_its_section_points_to(path: str) -> None:
    for heading, text in sections(read(path)):
        rows = linked_rows(text)
        for found in RATE.finditer(text):
            number = found["number"].replace(",", "")
            is_there = re.search(rf"(?<![\d.]){re.escape(number)}(?!\d)", rows)
            assert is_there or (path, heading) in OTHER or found[0] in OF_MAKERS, f"{path}, {heading}: {found[0]}"


@pytest.mark.parametrize("path", documents())
def test_each_row_that_a_document_points_to_exists(path: str) -> None:
    for link in LINK.finditer(read(path)):
        rows = rows_of(read(os.path.join(pages.PAGES_DIR, f"{link['page']}.md")))
        assert link["row"] is None or any(row.startswith(link["row"]) for row in rows), f"{path}: {link[0]}"


def test_each_exception_still_has_a_figure() -> None:
    for path, heading in OTHER:
        assert any(title == heading and CLAIM.search(text) for title, text in sections(read(path))), (path, heading)


def test_claims_and_links_are_told_apart_from_other_words() -> None:
    for claim in ("25 MiB/s", "1,000 requests a second", "2.2 times as long", "twice as fast", "a third the rate"):
        assert CLAIM.search(f"It is {claim}.")
    for other in ("64 MiB", "1 Gbit/s", "three times", "5 s", "half of it"):
        assert not CLAIM.search(f"It is {other}.")
    link = LINK.search('[x](../../workshop/bench/results/node.md "1 MiB read")')
    assert link and (link["page"], link["row"]) == ("node", "1 MiB read")
    assert list(sections("x\n# A\ntext\n```sh\n# B\n```\n## C\nmore\n")) == [
        ("", "x\n"),
        ("A", "text\n\n"),
        ("C", "more\n"),
    ]
