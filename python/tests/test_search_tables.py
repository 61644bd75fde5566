"""What `cheetah search --out` writes, as other programs read it: its tables, and its page."""

from __future__ import annotations

import csv
import gzip
import html.parser
import os
import stat
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from browser import Browser
from conftest import MIB, noise, run

WORD = "Geheim"
# What evidence may try: to leave its cell, to run or to load something, to hide, and to turn the direction of writing.
HOSTILE = (
    '</td></table></div><script>document.title="forged"</script><img src="https://example.com/x" onerror="alert(1)">'
    '<p class="banner">No hits in all 1TiB</p>"=cmd\u202e\u200b\u2066\n\r\t,;'
).encode()


@pytest.fixture(scope="module")
def found(binary: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a search with hits in hostile text, in UTF-16, and inside compressed data."""
    folder = tmp_path_factory.mktemp("search")
    content = bytearray(noise(2 * MIB, 77))
    hostile = HOSTILE + WORD.encode() + HOSTILE
    parts = [hostile, WORD.encode("utf-16-le"), b" poirot@example.com ", b"\xff\xfe" + WORD.encode()]
    parts += [gzip.compress(hostile)] + [b"%d %s" % (number, WORD.encode()) for number in range(40)]
    for number, part in enumerate(parts):
        begin = 8192 + number * 20000
        content[begin : begin + len(part)] = part
    image = folder / "<b>&amp;.raw"
    image.write_bytes(content)
    argv = ["--word", WORD, "--word", "absent <i>", "--find", "email", "--inside", "all", "--context", "400"]
    run(binary, "search", image, *argv, "--out", folder / "out")
    return folder / "out"


def test_the_parquet_file_has_the_rows_of_the_csv_with_types(found: Path) -> None:
    table = pq.read_table(found / "hits.parquet")
    with (found / "hits.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 45 and any(row["inside"] for row in rows)
    assert table.column_names == list(rows[0])
    types = {name: table.schema.field(name).type for name in table.column_names}
    assert {name for name, kind in types.items() if kind == pa.uint64()} == {"offset", "length"}
    assert all(kind == pa.string() for name, kind in types.items() if name not in ("offset", "length"))
    nullable = {name for name in table.column_names if table.schema.field(name).nullable}
    assert nullable == {"inside", "node", "instance"}
    as_text = [{name: "" if cell is None else str(cell) for name, cell in row.items()} for row in table.to_pylist()]
    assert as_text == rows
    assert table["node"].null_count == table.num_rows


def test_the_folder_of_a_search_has_the_files_that_the_guide_lists_and_is_private(found: Path) -> None:
    names = sorted(entry.name for entry in found.iterdir())
    assert names == [
        "coverage.map",
        "features",
        "hits.csv",
        "hits.parquet",
        "report.html",
        "search.journal",
        "search.json",
    ]
    assert stat.S_IMODE(os.stat(found).st_mode) == 0o700


class Outline(html.parser.HTMLParser):
    """The elements of a page, and its text outside of its style."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert not self.open, "each element is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.text += data


def test_hostile_evidence_is_text_in_the_page_and_nothing_else(found: Path) -> None:
    outline = Outline((found / "report.html").read_text(encoding="utf-8"))
    names = [name for name, _ in outline.elements]
    assert not {"script", "img", "iframe", "link", "form", "object", "base"} & set(names)
    for name, attributes in outline.elements:
        assert not any(key.startswith("on") or key in ("src", "style") for key in attributes), (name, attributes)
        assert (attributes.get("href") or "#").startswith("#")
    policy = next(one["content"] for _, one in outline.elements if one.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "<script>document.title" in outline.text and "<b>&amp;.raw" in outline.text
    assert not set("\u202e\u200b\u2066") & set(outline.text)
    assert [one.get("class") for name, one in outline.elements if name == "p"].count("banner") == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_narrow_and_wide_windows_and_paper(found: Path, tmp_path: Path, scheme: str) -> None:
    with Browser(tmp_path) as page:
        page.size(1280, 900)
        page.scheme(scheme)
        page.open((found / "report.html").as_uri())
        assert page.value("document.title") == "Report of a search"
        assert page.value("document.styleSheets.length") == 1, "the policy lets its own style in"
        ground = page.value("getComputedStyle(document.querySelector('.page')).backgroundColor")
        assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(23, 26, 30)"}[scheme]
        for width in (1280, 390, 320):
            page.size(width, 900)
            assert page.value("document.documentElement.scrollWidth") <= width
        page.scheme(scheme, "print")
        page.size(700, 900)
        assert page.value("document.documentElement.scrollWidth") <= 700
        assert page.value("getComputedStyle(document.querySelector('.page')).backgroundColor") == "rgb(255, 255, 255)"
