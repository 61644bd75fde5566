"""Tables on a terminal, and in a pipe."""

import io
import re
import statistics
from typing import Any

import bench_data
import pytest
from rich.cells import cell_len

from cheetah.bench import table
from cheetah.page.units import clock

Json = dict[str, Any]


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        """Returns that it is one."""
        return True


def shown(part: Json, out: io.StringIO | None = None) -> str:
    """Returns the printed tables of a part."""
    out = out or io.StringIO()
    table.show(part, out)
    return out.getvalue()


def median(part: Json, step: str, target: str, state: str = "cold") -> float:
    """Returns the median of the measured seconds."""
    samples = [one for one in part["samples"] if (one["step"], one["target"], one["state"]) == (step, target, state)]
    return statistics.median(one["seconds"] for one in samples if one["outcome"] == "done")


def widest(lines: list[str]) -> int:
    """Returns the columns of the widest line, without escape sequences."""
    return max(cell_len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in lines)


def test_the_table_has_a_row_for_each_target_and_its_speed_up() -> None:
    part = bench_data.storage()
    lines = shown(part).splitlines()
    head = lines[2].split()
    assert head[:3] == ["copy", "md5sum", "sha256sum"]
    disk = next(line.split() for line in lines if line.startswith("disk (baseline)"))
    assert disk[2:5] == [clock(median(part, step, "disk")) for step in head[:3]]
    stripe = next(number for number, line in enumerate(lines) if line.startswith("ram:stripe:64KiB@3"))
    ratios = next(line.split() for line in lines[stripe:] if line.startswith("  Speed up"))
    expected = [median(part, step, "disk") / median(part, step, "ram:stripe:64KiB@3") for step in head[:3]]
    assert [float(word) for word in ratios[2:5]] == pytest.approx(expected, abs=0.00501)
    assert "Speed up" not in lines[lines.index(next(line for line in lines if line.startswith("disk"))) + 2]


def test_an_unmeasured_cell_is_a_word_with_a_footnote() -> None:
    text = shown(bench_data.storage())
    assert "hung¹" in text and "\n1  scalpel was not done after 3600 s, and was ended; --step-limit allows more" in text
    assert "skipped²" in text and "sorter is not installed" in text
    assert "1 of 3 repetitions: tar: exit code 2" in text
    assert "≈1.02" in text and "≈ the difference may be chance" in text
    assert text.count("caches cold") == text.count("caches warm") == 1


def test_footnotes_that_differ_in_numbers_are_printed_once() -> None:
    part = bench_data.storage(spoil=False)
    for number, one in enumerate(part["samples"]):
        if one["state"] == "warm" and one["repetition"] == 1:
            one["warnings"] = [f"not warm: {number % 97} % of the image was in memory"]
    text = shown(part)
    assert text.count("not warm") == 1 and "1  for example: 1 of 3 repetitions: not warm: " in text
    assert "²" not in text


def test_a_pipe_gets_no_colours_and_a_narrow_terminal_gets_several_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    part = bench_data.storage()
    assert "\x1b" not in shown(part)
    monkeypatch.setenv("COLUMNS", "80")
    narrow = shown(part, Terminal()).splitlines()
    assert any("continued" in line for line in narrow)
    assert widest(narrow) <= 80
    words = " ".join(narrow)
    assert all(clock(median(part, step, "disk")) in words for step in bench_data.STEPS)


def test_a_table_with_long_names_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    names = tuple(f"target-{number}-{'x' * 100}" for number in range(3))
    lines = shown(bench_data.storage(targets=names), Terminal()).splitlines()
    assert widest(lines) <= 80


def test_single_measurements_claim_no_spread() -> None:
    text = shown(bench_data.storage(repetitions=1))
    assert "±" not in text and "≈" not in text and "measured once: no spread is known" in text


def test_figures_of_other_parts_stand_beside_the_best_of_the_others() -> None:
    lines = shown(bench_data.other()).splitlines()
    read = next(line for line in lines if line.startswith("1 MiB sequential read"))
    assert "3 550 [3 540 – 3 610]" in read and read.split()[-4:] == ["1.17", "≥", "1", "yes"]
    assert next(line for line in lines if line.startswith("CPU")).split()[-1] == "no"
    assert next(line for line in lines if "stripe  " in line).split()[-1] == "1.95"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0:00.00"), (0.001, "<0:00.01"), (59.999, "1:00.00"), (354.13, "5:54.13"), (3723.4, "1:02:03.40")],
)
def test_times_are_printed_as_on_a_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text
