"""The files with findings as a hash set, compared with a plain selection, and read by hfind."""

import csv
import hashlib
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import program, run

from cheetah.triage.tables import notable
from cheetah.triage.tables.schemas import FILES, FINDINGS


def file(path: str, *, address: str = "5", volume: int = 0, size: int = 1, **more: Any) -> dict[str, Any]:
    """A row of files.parquet that was read whole."""
    hashes = {name: hashlib.new(name, path.encode()).hexdigest() for name in notable.HASHES}
    return {"path": path, "address": address, "volume": volume, "size": size, "known": False, **hashes, **more}


def finding(path: str | None, score: int, kind: str, *, address: str | None = "5", volume: int = 0) -> dict[str, Any]:
    return {"path": path, "address": address, "volume": volume, "score": score, "kind": kind, "rule": "", "detail": ""}


def rows(folder: Path, files: list[dict[str, Any]], findings: list[dict[str, Any]]) -> list[dict[str, str]]:
    """The rows of notable.csv, which has a line for each in the list of MD5s."""
    for name, schema, table in (("files", FILES, files), ("findings", FINDINGS, findings)):
        pq.write_table(pa.Table.from_pylist(table, schema=schema), folder / f"{name}.parquet")
    notable.write(folder)
    with (folder / notable.TABLE).open(newline="") as opened:
        found = list(csv.DictReader(opened))
    listed = [line.split("  ", 1) for line in (folder / notable.MD5S).read_text().splitlines()]
    assert listed == [[row["MD5"], row["path"]] for row in found if row["MD5"]]
    return found


def test_the_file_with_the_best_finding_comes_first_with_the_kinds_of_all_of_them(tmp_path: Path) -> None:
    files = [file("/a"), file("/b"), file("/c"), file("/quiet")]
    findings = [finding("/b", 90, "wanted-hash"), finding("/c", 50, "keyword"), finding("/c", 60, "name")]
    findings += [finding("/a", 60, "keyword"), finding("/c", 40, "keyword")]
    found = rows(tmp_path, files, findings)
    assert [(row["path"], row["score"], row["finding"]) for row in found] == [
        ("/b", "90", "wanted-hash"),
        ("/a", "60", "keyword"),
        ("/c", "60", "keyword|name"),
    ]
    assert found[0]["SHA256"] == hashlib.sha256(b"/b").hexdigest() and found[0]["set"] == notable.SET


def test_known_empty_and_unread_files_and_findings_outside_of_files_are_left_out(tmp_path: Path) -> None:
    unread = dict.fromkeys(notable.HASHES)
    files = [
        file("/known", known=True),
        file("/known but wanted", known=True, wanted="stolen.md5"),
        file("/empty", size=0),
        file("/unread", **unread),
        file("/without md5", md5=None),
        file("/other volume", volume=1),
        file("/other address", address="6"),
    ]
    findings = [finding(row["path"], 50, "name") for row in files]
    findings.append(finding(None, 60, "keyword", address=None))
    found = rows(tmp_path, files, findings)
    assert [row["path"] for row in found] == ["/known but wanted", "/without md5"]


def test_without_findings_the_table_has_its_header_alone(tmp_path: Path) -> None:
    assert rows(tmp_path, [file("/a")], []) == []
    assert rows(tmp_path, [], []) == []
    assert (tmp_path / notable.TABLE).read_text() == ",".join(notable.HEADER) + "\n"


def test_a_name_with_any_character_stays_on_its_line(tmp_path: Path) -> None:
    names = ["/new\nline", '/"quoted",', "/ü 日本", "/back\\slash", "/tab\t"]
    found = rows(tmp_path, [file(name) for name in names], [finding(name, 1, "name") for name in names])
    shown = {name.replace("\n", "^").replace("\t", "^") for name in names}
    assert {row["path"] for row in found} == shown and len((tmp_path / notable.MD5S).read_text().splitlines()) == 5


def test_a_large_result_equals_a_plain_selection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notable, "_ROWS", 100)
    chance = random.Random(4)
    files = [file(f"/{number}", address=str(number % 7), known=chance.random() < 0.2) for number in range(2000)]
    chosen = chance.choices(files, k=3000)
    findings = [
        finding(row["path"], chance.randrange(100), chance.choice(("name", "keyword")), address=row["address"])
        for row in chosen
    ]
    best: dict[str, int] = {}
    for one in findings:
        best[one["path"]] = max(best.get(one["path"], 0), one["score"])
    expected = sorted((-best[row["path"]], row["path"]) for row in files if row["path"] in best and not row["known"])
    found = rows(tmp_path, files, findings)
    assert [(-int(row["score"]), row["path"]) for row in found] == expected


def test_hfind_finds_each_file_in_the_list_and_no_other(tmp_path: Path) -> None:
    files = [file(f"/folder/letter {number}.txt") for number in range(40)]
    rows(tmp_path, files, [finding(row["path"], 50, "keyword") for row in files[:30]])
    hfind, hashes = program("hfind"), tmp_path / notable.MD5S
    run(hfind, "-i", "md5sum", hashes)
    looked_up = run(hfind, hashes, *(row["md5"] for row in files)).splitlines()
    answers = {digest.lower(): answer for digest, answer in (line.split("\t", 1) for line in looked_up)}
    assert [answers[row["md5"]] for row in files[:30]] == [row["path"] for row in files[:30]]
    assert {answers[row["md5"]] for row in files[30:]} == {"Hash Not Found"}
