"""The results of `cheetah bench`: written whole, and validated when read."""

import csv
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from cheetah.bench import results
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure, chance, overlap
from cheetah.bench.results import Results
from cheetah.bench.storage.sample import Outcome, Sample

RATE = Figure("node/rate", "nbdcopy", "MiB/s", "cheetah node", {"cheetah node": [3.0, 1.0, 2.0], "nbdkit": [1.0, 2.0]})


def storage() -> dict[str, Any]:
    """A part as `cheetah bench storage` makes it."""
    copy = Sample("disk", "copy", "cold", 1, Outcome.DONE, seconds=2.5, tool_s=2.0, flush_s=0.5, written_bytes=1 << 20)
    read = Sample(
        "=disk", "fio/read", "cold", 1, Outcome.DONE, seconds=4.0, bytes_per_s=1e6, warnings=("not cold", "x")
    )
    lost = Sample("disk", "strings", "cold", 1, Outcome.FAILED, "strings: exit code 1")
    return {
        "part": "storage",
        "title": "Storage",
        "finished": "2026-11-21T18:00:00+00:00",
        "steps": [{"key": "copy", "title": "Copy in"}, {"key": "fio/read", "title": "Read"}],
        "targets": [{"name": "disk", "about": {}}],
        "samples": [sample.to_json() for sample in (copy, read, lost)],
        "figures": [],
    }


def whole() -> Results:
    """A run of two parts."""
    node = {"part": "node", "title": "One node", "finished": "", "figures": [RATE.to_json()]}
    return Results({"processor": "x"}, ["cheetah", "bench"], [storage(), node])


def test_results_are_read_as_written(tmp_path: Path) -> None:
    out = tmp_path / "a" / "b"
    results.write(out, whole())
    found = results.read(out)
    assert found == results.read(out / "results.json")
    assert found.to_json() == json.loads(json.dumps(whole().to_json() | {"finished": found.finished}))
    assert found.finished and [sample.step for sample in results.samples(found.parts[0])] == [
        "copy",
        "fio/read",
        "strings",
    ]
    part = found.part("node")
    assert part is not None and results.figures(part) == [RATE]
    assert sorted(path.name for path in out.iterdir()) == ["results.csv", "results.json"]


def test_a_part_measured_again_replaces_the_earlier_one() -> None:
    found = whole()
    found.put({"part": "storage", "title": "again"})
    found.put({"part": "drive", "title": "new"})
    assert [(part["part"], part["title"]) for part in found.parts] == [
        ("storage", "again"), ("node", "One node"), ("drive", "new"),
    ]  # fmt: skip


def test_the_table_has_a_row_for_each_sample(tmp_path: Path) -> None:
    results.write(tmp_path, whole())
    with open(tmp_path / "results.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 + 5
    copy, read, lost = rows[:3]
    assert (copy["what"], copy["contender"], copy["value"], copy["unit"]) == ("Copy in", "disk", "2.5", "s")
    assert (copy["written_bytes"], copy["read_bytes"], copy["flush_s"]) == (str(1 << 20), "", "0.5")
    assert (read["value"], read["unit"], read["warnings"]) == ("1000000.0", "bytes/s", "not cold; x")
    assert (lost["outcome"], lost["value"], lost["problem"]) == ("failed", "", "strings: exit code 1")
    assert [(row["contender"], row["round"], row["value"]) for row in rows[3:5]] == [
        ("cheetah node", "1", "3.0"), ("cheetah node", "2", "1.0"),
    ]  # fmt: skip


def test_a_figure_that_is_not_finite_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        results.write(tmp_path, Results({}, [], [{"part": "x", "figures": [], "share": float("nan")}]))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda value: value.update(format="cheetah-bench-2"), "reads cheetah-bench-1"),
        (lambda value: value.pop("format"), "no format"),
        (lambda value: value.pop("machine"), "machine"),
        (lambda value: value.update(parts={}), "parts is not a list"),
        (lambda value: value.update(parts=[{}] * 201), "more than 200"),
        (
            lambda value: value["parts"][1]["figures"][0]["samples"].update(nbdkit=["1"]),
            "a sample is not a measurable number",
        ),
        (
            lambda value: value["parts"][1]["figures"][0]["samples"].update(nbdkit=[True]),
            "a sample is not a measurable number",
        ),
        (lambda value: value["parts"][1]["figures"][0]["samples"].update(nbdkit=[]), "no samples"),
        (lambda value: value["parts"][1]["figures"][0].update(better="loud"), "neither higher nor lower"),
        (lambda value: value["parts"][1]["figures"][0].update(more=1), "more"),
        (lambda value: value["parts"][0]["samples"][0].update(seconds="1"), "seconds is not a measurable number"),
        (lambda value: value["parts"][0]["samples"][0].update(seconds=10**400), "seconds is not a measurable number"),
        (lambda value: value["parts"][0]["samples"][0].update(seconds=1e308), "seconds is not a measurable number"),
        (lambda value: value["parts"][0].update(rounds=10**9), "rounds"),
        (lambda value: value["parts"][0].update(rounds="3"), "rounds"),
        (lambda value: value["parts"][0]["samples"][0].update(outcome="fine"), "fine"),
        (lambda value: value["parts"][0]["targets"].append("disk"), "not an object"),
        (lambda value: value["parts"][0].update(warnings=[1]), "not text"),
    ],
)
def test_an_invalid_structure_is_one_sentence(tmp_path: Path, change: Any, said: str) -> None:
    value = whole().to_json()
    change(value)
    path = tmp_path / "results.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    with pytest.raises(BenchError) as caught:
        results.read(path)
    assert said in str(caught.value) and str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b"[" * 100_000, b'{"format": NaN}'])
def test_a_file_without_results_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "results.json"
    path.write_bytes(content)
    with pytest.raises(BenchError, match="does not hold results of cheetah bench"):
        results.read(path)


def test_tables_too_large_for_memory_are_refused(tmp_path: Path) -> None:
    """Even for a few samples."""
    one = whole().to_json()["parts"][0]["samples"][0]
    for grown in (
        [one | {"target": f"t{number}", "step": f"s{number}"} for number in range(500)],
        [one | {"step": f"fio/read/{number}KiB/{number}KiB"} for number in range(500)],
    ):
        value = whole().to_json()
        value["parts"][0]["samples"] = grown
        (tmp_path / "results.json").write_text(json.dumps(value), encoding="utf-8")
        with pytest.raises(BenchError, match="more than 200,000 cells"):
            results.read(tmp_path)


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"name a results\.json"):
        results.read(tmp_path)


def test_an_endless_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "SIZE_MAX_BYTES", 1 << 20)
    with pytest.raises(BenchError, match="larger than 1MiB"):
        results.read(Path("/dev/zero"))


def test_csv_holds_nothing_that_a_spreadsheet_evaluates(tmp_path: Path) -> None:
    names = ("=1+1", "+1", "-1", "@SUM(1)", "\t=1", "plain")
    figure = Figure("node/rate", "=HYPERLINK(1)", "MiB/s", None, {name: [-1.5] for name in names})
    part = {"part": "node", "title": "Node", "finished": results.now(), "figures": [figure.to_json()]}
    results.write(tmp_path, Results({"kernel": "6"}, ["x"], [part]))
    with open(tmp_path / "results.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["contender"] for row in rows] == ["'=1+1", "'+1", "'-1", "'@SUM(1)", "'\t=1", "plain"]
    assert {row["what"] for row in rows} == {"'=HYPERLINK(1)"}
    # Negative numbers are unchanged.
    assert {row["value"] for row in rows} == {"-1.5"}


def test_ranges_that_touch_or_enclose_each_other_overlap() -> None:
    assert overlap([1, 2, 3], [3, 4])
    assert overlap([1, 10], [4, 5])
    assert not overlap([1, 2, 3], [3.1, 4])
    assert not overlap([5], [4])


def test_with_few_rounds_chance_differences_are_frequent() -> None:
    def apart(order: tuple[int, ...]) -> bool:
        some = [place for place, of in enumerate(order) if of]
        return not overlap(some, [place for place, of in enumerate(order) if not of])

    for some, others in ((1, 1), (2, 2), (3, 3), (3, 4)):
        orders = set(itertools.permutations([1] * some + [0] * others))
        assert chance(some, others) == pytest.approx(sum(map(apart, orders)) / len(orders))
    assert chance(5, 5) < 0.01
    assert 0 < chance(10**9, 10**9) < chance(1, 10**9) < 0.02


def test_a_link_in_place_of_a_result_is_not_followed(tmp_path: Path) -> None:
    """Otherwise, anyone who could write to the directory could have other files overwritten."""
    other = tmp_path / "other"
    other.write_text("theirs")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "results.json.partial").symlink_to(other)
    with pytest.raises(OSError, match="symbolic link"):
        results.write(tmp_path / "out", whole())
    assert other.read_text() == "theirs"
