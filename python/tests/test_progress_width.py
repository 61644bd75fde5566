"""Progress bars on a terminal of 80 columns: a line that wraps cannot be redrawn in place."""

import re

import pytest

from cheetah.bench.storage.run import progress as bench
from cheetah.triage.hub import progress as triage
from cheetah.triage.task import Event, Finding

LONG = "a-name-as-long-as-some-people-make-them/" * 5


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes rich draw as on a terminal of 80 columns."""
    for name, value in {"COLUMNS": "80", "LINES": "25", "FORCE_COLOR": "1", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)


def drawn(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Returns the lines that were drawn, without escape sequences."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    lines = [line.rstrip() for line in re.split(r"[\r\n]", text)]
    assert any(lines), "nothing was drawn"
    return lines


@pytest.mark.usefixtures("terminal")
def test_bars_of_triage_with_long_names_and_large_numbers_fit(capsys: pytest.CaptureFixture[str]) -> None:
    found = Finding(200, 0, "keyword", LONG, "", "7", f"/home/{LONG}letter.txt")
    with triage._bar() as tell:
        tell(Event("content", 123_456_789, 987_654_321, unit="files", findings=12_345, latest=(found,), elapsed_s=1e6))
        tell(Event("unallocated", 1 << 44, 1 << 45, unit="bytes", elapsed_s=1e6))
    lines = drawn(capsys)
    assert max(map(len, lines)) <= 80, max(lines, key=len)
    assert any("unallocated" in line for line in lines)


@pytest.mark.usefixtures("terminal")
def test_bars_of_bench_with_long_names_fit(capsys: pytest.CaptureFixture[str]) -> None:
    with bench._bar() as tell:
        tell(bench.Event("entering", target=LONG))
        tell(bench.Event("measuring", 12_345, 98_765, target=LONG, step="fio/random-write/64MiB/4KiB", state="cold"))
        tell(bench.Event("note", said=f"{LONG} is full"))
    lines = drawn(capsys)
    assert max(map(len, lines)) <= 80, max(lines, key=len)
    assert any("fio/random-write" in line for line in lines)
