"""What documents calculate from the published figures."""

from __future__ import annotations

import os
import shutil

import pytest

from bench.report import marked, published, worth
from cheetah.bench.failure import BenchError
from cheetah.bench.units import MIB


def measured() -> worth.Measured:
    """Figures that are easy to calculate with."""
    return worth.Measured(100.0, 0.0005, 0.00025, 0.0001, 100.0, 1.0)


@pytest.mark.parametrize("document", worth.PARTS)
def test_documents_have_what_follows_from_the_published_figures(document: str) -> None:
    with open(os.path.join(published.ROOT, document), encoding="utf-8") as file:
        text = file.read()
    assert text == worth.calculated(document, text)


def test_a_link_of_n_times_the_rate_carries_n_times_as_much() -> None:
    figures = measured()
    assert [figures.carried(gbit) for gbit in worth.LINKS_GBIT] == [100.0, 250.0, 1000.0, 2500.0]
    assert figures.link_share == pytest.approx(100 * MIB / 125e6)
    assert figures.hours(100 * 3600 / 1024, 1.0) == pytest.approx(1.0)
    assert figures.reads_per_s(100) == pytest.approx(5000)


def test_readers_share_the_link_of_one_server_and_not_those_of_as_many_nodes() -> None:
    figures = measured()
    assert [figures.each(readers, 1, 1.0) for readers in (1, 2, 4)] == [100.0, 50.0, 25.0]
    assert [figures.each(readers, 4, 1.0) for readers in (1, 2, 4, 8)] == [100.0, 100.0, 100.0, 50.0]


def test_an_image_takes_as_many_machines_as_its_redundancy_needs() -> None:
    figures = measured()
    held_gib = (worth.LENT_GIB * 1024 - 100) / 1024
    assert figures.machines(1.9 * held_gib, "stripe") == 2
    assert figures.machines(1.9 * held_gib, "parity") == 3
    assert figures.machines(1.9 * held_gib, "mirror") == 4
    assert figures.machines(0.1, "parity") == 3, "parity needs three nodes"
    assert figures.machines(1e9, "stripe") == 0, "no room is as large as that"


def test_ratios_above_one_are_bold_and_every_link_has_a_row() -> None:
    lines = worth.one_reader(measured(), "results")
    rows = [line for line in lines if line.startswith("| ") and "Gbit/s" in line]
    assert len(rows) == len(worth.LINKS_GBIT)
    assert "**" not in rows[0] and "**" in rows[-1]


def test_a_row_of_a_page_is_read_and_a_missing_one_is_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(published, "PAGES_DIR", str(tmp_path))
    (tmp_path / "node.md").write_text(
        "| a read, depth 1 (MiB/s) | 1 230 [1 – 2 000] | 3 [3 – 3] x | **2.00** [1 – 2] |\n"
    )
    assert published.ours("node", "a read") == 1230.0
    assert published.link("node", "a read", "words", "to") == '[words](to/node.md "a read")'
    with pytest.raises(BenchError, match="no row that begins with: a write"):
        published.link("node", "a write", "words", "to")
    with pytest.raises(BenchError, match="was not measured"):
        published.ours("drive", "a read")
    assert published.exists("node") and not published.exists("drive")


def test_readers_that_were_measured_are_named_beside_those_that_were_calculated(tmp_path, monkeypatch) -> None:
    rows = [(1, "analyst"), (2, "analysts"), (4, "analysts"), (8, "analysts")]
    page = "".join(
        f"| {count} {word} at once (MiB/s) | {count * 100} [1 – 2] | 3 [3 – 3] x |\n" for count, word in rows
    )
    (tmp_path / "analysts.md").write_text(page)
    shutil.copy(os.path.join(published.PAGES_DIR, "links.md"), tmp_path)
    monkeypatch.setattr(published, "PAGES_DIR", str(tmp_path))
    assert '[8: 800](to/analysts.md "8 analysts at once")' in worth.several_readers(measured(), "to")[-1]


def test_a_part_of_a_document_is_replaced_and_the_rest_stays() -> None:
    text = f"a\n{marked.begin('x')}\nold\n{marked.end('x')}\nb\n"
    once = marked.replaced(text, "x", ["new"])
    assert once == text.replace("old", "new") == marked.replaced(once, "x", ["new"])
    with pytest.raises(ValueError, match="lacks"):
        marked.replaced("a", "x", [])
