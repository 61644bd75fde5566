"""The tables of storage in the published results."""

from __future__ import annotations

import statistics

import bench_data

from bench.report import markdown
from cheetah.page.units import clock


def test_markdown_is_a_table_that_names_cannot_break() -> None:
    name = "a|b`<b>*\u202e\n"
    part = bench_data.storage(targets=("disk", name))
    lines = markdown.tables(part)
    heads = [line for line in lines if line.startswith("| | ")]
    assert len(heads) == 4, "cold, warm, and two sizes of records"
    rows = [line for line in lines if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in rows[:5]} == {len(bench_data.STEPS) + 2}
    text = "\n".join(lines)
    assert "a\\|b\\`\\<b\\>\\*" in text and "\u202e" not in text
    disk = [one["seconds"] for one in part["samples"] if (one["step"], one["target"]) == ("copy", "disk")]
    assert f"{clock(statistics.median(disk))} [{clock(min(disk))} – {clock(max(disk))}]" in text
