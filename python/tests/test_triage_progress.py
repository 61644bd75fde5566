"""The progress output of a run."""

import io
import json

import pytest

from cheetah.progress_output import Json
from cheetah.triage.hub import progress
from cheetah.triage.hub.progress import Plain, words
from cheetah.triage.task import Event, Finding

FOUND = Finding(200, 0, "keyword", "gun", "", "7", "/home/\x1b[2Jjoe/le\u202etter.txt")


def test_a_log_has_a_line_for_each_stage_and_each_finding_once() -> None:
    out = io.StringIO()
    tell = Plain(out)
    for elapsed_s in range(12):
        tell(Event("listing", elapsed_s * 1000, elapsed_s * 1000, unit="entries", elapsed_s=elapsed_s))
    for elapsed_s in range(12, 15):
        tell(Event("content", elapsed_s, 20_000, 5, 1, (FOUND,), elapsed_s=elapsed_s))
    lines = out.getvalue().splitlines()
    assert [line.split("s  ", 1)[1].split(":")[0] for line in lines] == ["listing"] * 3 + ["found", "reading files"]
    assert "reading files: 12 of 20,000 files, 1 finding" in lines[-1]


def test_names_cannot_control_the_terminal() -> None:
    out = io.StringIO()
    Plain(out)(Event("content", 1, 2, 5, 1, (FOUND,)))
    assert "\x1b" not in out.getvalue()
    assert "\u202e" not in out.getvalue()


def test_json_events_are_one_object_per_line() -> None:
    out = io.StringIO()
    Json(out)(Event("content", 1, 2, 5, 1, (FOUND,)))
    event = json.loads(out.getvalue())["progress"]
    assert (event["stage"], event["done"], event["latest"][0]["rule"]) == ("content", 1, "gun")


def test_bytes_are_printed_in_mib() -> None:
    assert words(Event("unallocated", 3 << 20, 8 << 20, unit="bytes")) == "searching unallocated space: 3 of 8 MiB"


def test_only_slow_hash_lists_report_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Event] = []
    tell = progress.of_lists(heard.append)
    tell(1 << 20, 8 << 20)
    assert not heard
    monkeypatch.setattr(progress, "TELL_S", 0.0)
    tell(3 << 20, 8 << 20)
    assert words(heard[0]) == "preparing hash lists: 3 of 8 MiB"
