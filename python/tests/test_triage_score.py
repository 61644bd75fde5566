"""Scores: what to look at first, with a reason for each point."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from cheetah.triage.ranking import score
from cheetah.triage.tables.schemas import FILES

DAY = 86400
SEIZED = 20_000 * DAY


def row(path: str, **more: Any) -> dict[str, Any]:
    name = path.rpartition("/")[2]
    fixed = {"volume": 0, "address": "9", "path": path, "name": name, "size": 1000, "deleted": False, "known": False}
    extension = name.rpartition(".")[2].lower() if "." in name else ""
    old = {"mtime": SEIZED - 900 * DAY, "crtime": SEIZED - 900 * DAY}
    read = {"named": None, "wanted": None, "hits": 0, "type": None, "type_mismatch": False, "read_state": "whole"}
    return {**fixed, "extension": extension, **old, **read, **more}


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=FILES)


def ordered(rows: list[dict[str, Any]], points: pa.Array) -> list[str]:
    pairs = sorted(zip(points.to_pylist(), rows, strict=True), key=lambda pair: -pair[0])
    return [one["path"] for _, one in pairs]


def test_user_files_are_read_before_system_files() -> None:
    rows = [
        row("/Windows/WinSxS/x/a.dll"),
        row("/Windows/System32/b.dll"),
        row("/data/readme"),
        row("/Users/ann/AppData/Local/x.dat"),
        row("/Users/ann/Desktop/plan.docx"),
        row("/$Recycle.Bin/S-1/$R1.docx", deleted=True),
        row("/Users/ann/Desktop/empty.docx", size=0),
        row("/Windows/WinSxS/x/password.bin", named="password"),
    ]
    order = ordered(rows, score.rank(batch(*rows)))
    assert order.pop(0) == "/Windows/WinSxS/x/password.bin", "a name with a keyword comes before all"
    assert order[0] == "/$Recycle.Bin/S-1/$R1.docx" and order[1] == "/Users/ann/Desktop/plan.docx"
    assert order.index("/Users/ann/AppData/Local/x.dat") < order.index("/data/readme")
    assert set(order[-3:]) >= {"/Windows/WinSxS/x/a.dll", "/Users/ann/Desktop/empty.docx"}


def test_findings_count_more_than_folders() -> None:
    rows = [
        row("/Windows/System32/a.dll", wanted="bad.txt", known=True),
        row("/Users/ann/Documents/b.txt", hits=3),
        row("/Users/ann/Documents/c.jpg", type="zip", type_mismatch=True),
        row("/Users/ann/Documents/d.hc", type="random"),
        row("/Users/ann/Documents/e.txt"),
        row("/Users/ann/Documents/f.txt", known=True, hits=0),
    ]
    scores = score.final(batch(*rows))
    assert ordered(rows, scores) == [one["path"] for one in rows]
    assert scores[5].as_py() == 0, "a known file is set aside"


def test_every_point_has_a_reason_and_they_add_up() -> None:
    rows = [
        row(
            "/Users/ann/Downloads/a.zip", type="zip-encrypted", hits=12, type_mismatch=True, deleted=True, size=1 << 30
        ),
        row("/Users/ann/password.txt", named="password"),
        row("/Windows/x", size=0),
        row("/Users/ann/x.pst", mtime=SEIZED),
    ]
    activity = score.Activity.of(
        [batch(*[row(f"/{day}", mtime=SEIZED - day * DAY) for day in range(400) for _ in range(3)])]
    )
    for one, total in zip(rows, score.final(batch(*rows), activity).to_pylist(), strict=True):
        points = score.explain(one, activity)
        assert sum(point.points for point in points) == total >= 0
        assert all(point.why and not point.why.endswith(".") for point in points)


def test_the_last_day_of_use_counts_and_one_wrong_clock_does_not() -> None:
    lived = [row(f"/{number}", mtime=SEIZED - number * DAY) for number in range(300) for _ in range(3)]
    activity = score.Activity.of([batch(*lived[:500]), batch(*lived[500:], row("/future", mtime=SEIZED + 4000 * DAY))])
    assert activity.last(0) == SEIZED // DAY and activity.last(7) == -1
    fresh, old = row("/Users/ann/a.txt", mtime=SEIZED), row("/Users/ann/b.txt")
    points = score.rank(batch(fresh, old), activity).to_pylist()
    assert points[0] > points[1]
    assert any("last day" in point.why for point in score.explain(fresh, activity))


def test_a_recoverable_deleted_picture_is_a_finding() -> None:
    found = score.findings(batch(
        row("/Users/ann/Pictures/a.jpg", deleted=True, type="jpeg"),
        row("/Users/ann/Pictures/b.jpg", deleted=True, type="jpeg", read_state="partial"),
        row("/Users/ann/Pictures/c.jpg", type="jpeg"),
        row("/Users/ann/AppData/Local/Cache/d.jpg", deleted=True, type="jpeg"),
        row("/Users/ann/Pictures/e.jpg", deleted=True, type="jpeg", known=True),
    ))  # fmt: skip
    assert [one.path for one in found] == ["/Users/ann/Pictures/a.jpg"]
    assert found[0].kind == "deleted" and found[0].score > 0


def test_the_documented_scores_are_the_real_ones() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/reference/scores.md").read_text(encoding="utf-8")
    for kind, points in score.FINDINGS.items():
        assert f"| `{kind}` | {points} |" in page
    for _, points in score.RECENT:
        assert str(points) in page
