"""The report: its numbers are those of the tables, and names from the evidence are harmless."""

import html
import html.parser
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import triage_data
from browser import rendered

from cheetah.triage import report
from cheetah.triage.report import summary
from cheetah.triage.report.summary import UnallocatedCoverage
from cheetah.triage.tables.schemas import FILES, FINDINGS

Json = dict[str, Any]


def made(folder: Path, rows: int = 3000, **changes: Any) -> Json:
    """A case in `folder`, with its summary and report."""
    facts = triage_data.write(folder, rows, **changes)
    made_summary = summary.write(folder, facts)
    report.write(folder)
    return made_summary


class Shown(html.parser.HTMLParser):
    """The text of a page, its figures by their places in summary.json, and its elements by name."""

    def __init__(self, page: str):
        super().__init__()
        self.text: list[str] = []
        self.figures: dict[str, list[tuple[str, str]]] = {}
        self.elements: list[str] = []
        self._open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        made_summary = dict(attrs)
        if tag == "data":
            place = made_summary.get("data-figure") or made_summary.get("data-size") or ""
            self.figures.setdefault(place, []).append((str(made_summary.get("value")), ""))
            self._open = [place]

    def handle_endtag(self, tag: str) -> None:
        if tag == "data":
            self._open = []

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        for place in self._open:
            value, text = self.figures[place][-1]
            self.figures[place][-1] = (value, text + data)


def meant(made_summary: Json, place: str) -> Any:
    """A figure of the summary by its place there."""
    for name in place.split("."):
        made_summary = made_summary[int(name)] if isinstance(made_summary, list) else made_summary[name]
    return made_summary


def test_a_browser_shows_the_figures_of_the_tables(tmp_path: Path) -> None:
    made_summary = made(tmp_path)
    table = pq.read_table(tmp_path / "files.parquet")
    regular = table.filter(pc.equal(table["kind"], "r"))
    hashed = pc.sum(pc.cast(pc.is_valid(table["sha256"]), pa.int64())).as_py()
    findings = pq.read_table(tmp_path / "findings.parquet").num_rows
    assert made_summary["counts"]["rows"] == table.num_rows and regular.num_rows >= made_summary["counts"]["files"]
    assert (made_summary["counts"]["hashed"], made_summary["counts"]["findings"]) == (hashed, findings)

    shown = Shown(rendered(tmp_path))
    assert len(shown.figures) > 20 and "coverage.link.source_bytes" in shown.figures
    for place, figures in shown.figures.items():
        for value, text in figures:
            assert value == str(meant(made_summary, place)), place
            digits = re.sub(r"\D", "", text)
            assert digits == value or not value.isdigit() or "B" in text or "bytes" in text, (place, text)
    text = "".join(shown.text)
    assert f"{table.num_rows:,}".replace(",", "\u202f") in text
    assert "“heron” stands in it 4 times, in UTF-16" in text
    assert "U+202F" not in text, "our own numbers are not evidence"


def test_a_source_of_one_day_has_its_last_day_drawn(tmp_path: Path) -> None:
    made_summary = made(tmp_path, 50)
    assert "The last day of it, a bar" in report.render({**made_summary, "activity": {"2024-03-01": 7}}, [])
    assert "The last 2 days of it, a bar" in report.render(
        {**made_summary, "activity": {"2024-03-01": 7, "2024-03-02": 1}}, []
    )


def test_the_report_says_how_each_connection_to_the_source_was_protected(tmp_path: Path) -> None:
    nodes = [f"node pc{number}: TLS 1.3, AES-128-GCM, with pc{number} (node) of room lab" for number in range(9)]
    for connections in ([], ["in clear: neither encrypted nor authenticated"], nodes):
        made(tmp_path, 50, connections=connections)
        shown = Shown(rendered(tmp_path))
        text = "".join(shown.text)
        assert all(sentence in text for sentence in connections)
        assert ("No connection: a file or disk" in text) == (not connections)


def test_names_from_the_evidence_are_text_and_nothing_else(tmp_path: Path) -> None:
    hostile = "/</td><script>document.title='owned'</script>\u202egpj\x1b[31m\x00\n<img src=x onerror=alert(1)>&amp;"
    triage_data.write(tmp_path, 200)
    rows = pq.read_table(tmp_path / "findings.parquet").to_pylist()
    for row in rows[:3]:
        row.update(path=hostile, rule=hostile, detail=hostile, excerpt=hostile)
    pq.write_table(pa.Table.from_pylist(rows, FINDINGS), tmp_path / "findings.parquet")
    source = {"name": hostile, "size_bytes": 1 << 30, "uri": hostile}
    summary.write(
        tmp_path, triage_data.facts(source=source, lost=[hostile], connections=[hostile], command=("cheetah", hostile))
    )
    report.write(tmp_path)

    shown = Shown(rendered(tmp_path))
    assert "img" not in shown.elements and shown.elements.count("script") == 2
    text = "".join(shown.text)
    assert "<script>document.title='owned'</script>" in text, "it is shown"
    assert not re.search("[\u202e\x1b\x00]", text) and "U+202E" in text and "U+001B" in text
    page = (tmp_path / "report.html").read_text()
    assert "default-src 'none'" in html.unescape(page)
    assert not re.search(r"<[^>]*(src|href)=[\"']?(https?:)?//", page)


def test_a_partial_report_says_so(tmp_path: Path) -> None:
    quick = triage_data.facts().settings | {"quick": True}
    for verdict, changes, words in (
        ("stopped", {"complete": False}, "Stopped early"),
        ("quick", {"settings": quick}, "A quick look, not an examination"),
        ("gaps", {}, "Done, with gaps"),
    ):
        folder = tmp_path / verdict
        folder.mkdir()
        assert made(folder, 300, **changes)["verdict"] == verdict
        assert words in (folder / "report.html").read_text()


def test_an_empty_result_has_a_report(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist([], FILES), tmp_path / "files.parquet")
    pq.write_table(pa.Table.from_pylist([], FINDINGS), tmp_path / "findings.parquet")
    facts = triage_data.facts(volumes=(), problems=(), unallocated=UnallocatedCoverage(), bytes_read=0, link={})
    assert summary.write(tmp_path, facts)["counts"]["files"] == 0
    report.write(tmp_path)
    assert "No file system was found" in (tmp_path / "report.html").read_text()


def test_the_same_tables_make_the_same_page_whatever_their_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path, 2000)
    before = [(tmp_path / name).read_bytes() for name in ("summary.json", "report.html")]
    monkeypatch.setattr(summary, "BATCH_ROWS", 77)
    summary.write(tmp_path, triage_data.facts())
    report.write(tmp_path)
    assert before == [(tmp_path / name).read_bytes() for name in ("summary.json", "report.html")]
    assert json.loads(before[0])["counts"]["rows"] > 2000
