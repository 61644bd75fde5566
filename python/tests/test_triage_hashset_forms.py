"""Databases of the NSRL, hash sets of EnCase and indexes of hfind, and lists that are refused, each with its kind."""

import contextlib
import hashlib
import pickle
import sqlite3
import tracemalloc
from pathlib import Path

import pytest

from cheetah.triage.search import databases, encase, hashset
from cheetah.triage.search.fault import Kind, ListFault

MINIMAL = "CREATE TABLE FILE (sha256, sha1, md5, file_name VARCHAR, file_size INTEGER, package_id INTEGER)"


def hashes(algorithm: str, count: int, seed: int = 0) -> list[str]:
    return [hashlib.new(algorithm, f"{seed} {number}".encode()).hexdigest() for number in range(count)]


def opened(path: Path) -> hashset.HashList:
    (found,) = hashset.open_lists([str(path)], cache=str(path.parent / "cache"))
    return found


def assert_holds(found: hashset.HashList, algorithm: str, count: int) -> None:
    assert (found.algorithm, found.count) == (algorithm, count)
    assert all(found.contains([bytes.fromhex(one) for one in hashes(algorithm, count)]))
    assert not any(found.contains([bytes.fromhex(one) for one in hashes(algorithm, 200, 1)]))


def refused(path: Path) -> ListFault:
    with pytest.raises(ListFault) as caught:
        opened(path)
    assert caught.value.path == str(path) and str(path) in str(caught.value)
    return caught.value


def made(path: Path, *statements: str, rows: tuple[str, list[tuple[object, ...]]] | None = None) -> Path:
    with contextlib.closing(sqlite3.connect(path)) as database:
        for statement in statements:
            database.execute(statement)
        if rows:
            database.executemany(*rows)
        database.commit()
    return path


def minimal(path: Path, columns: tuple[list[str | None], list[str], list[str]]) -> Path:
    rows = [(a, b, c, f"file{at}", at, at % 3) for at, (a, b, c) in enumerate(zip(*columns, strict=True))]
    return made(path, MINIMAL, rows=("INSERT INTO FILE VALUES (?, ?, ?, ?, ?, ?)", [*rows, *rows]))


def all_hashes(count: int) -> tuple[list[str | None], list[str], list[str]]:
    sha256 = [one.upper() for one in hashes("sha256", count)]
    return [*sha256], hashes("sha1", count), hashes("md5", count)


def test_a_minimal_database_is_searched_by_its_strongest_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "_ROWS", 7)
    path = minimal(tmp_path / "RDS # 1?.db", all_hashes(300))
    before = path.read_bytes()
    assert_holds(opened(path), "sha256", 300)
    assert path.read_bytes() == before
    assert sorted(one.name for one in tmp_path.iterdir()) == [path.name, "cache"]


def test_a_full_database_has_a_view_of_files(tmp_path: Path) -> None:
    rows = [(at, one.upper()) for at, one in enumerate(hashes("sha1", 100))]
    path = made(
        tmp_path / "full.db",
        "CREATE TABLE METADATA (object_id INTEGER PRIMARY KEY, sha1 VARCHAR)",
        "CREATE TABLE PACKAGE_OBJECT (package_id INTEGER, object_id INTEGER)",
        "CREATE VIEW FILE AS SELECT UPPER(m.sha1) AS sha1, p.package_id FROM METADATA m JOIN PACKAGE_OBJECT p "
        "ON p.object_id = m.object_id",
        rows=("INSERT INTO METADATA VALUES (?, ?)", rows),
    )
    assert_holds(opened(path), "sha1", 100)


def test_a_column_without_values_gives_way_to_the_next(tmp_path: Path) -> None:
    _, sha1, md5 = all_hashes(50)
    assert_holds(opened(minimal(tmp_path / "old.db", ([None] * 50, sha1, md5))), "sha1", 50)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (hashes("md5", 1)[0], Kind.OTHER_LENGTH),
        ("", Kind.NO_HASH),
        (None, Kind.NO_HASH),
        ("x" * 64, Kind.NO_HASH),
        (hashes("sha256", 1)[0][:-1], Kind.NO_HASH),
    ],
)
def test_a_row_with_another_hash_than_its_column_says_is_refused(tmp_path: Path, value: str | None, kind: Kind) -> None:
    columns = all_hashes(40)
    columns[0][17] = value
    fault = refused(minimal(tmp_path / "RDS.db", columns))
    assert (fault.kind, fault.line) == (kind, 18)


def test_a_database_with_changes_beside_it_is_refused_also_if_it_is_in_the_cache(tmp_path: Path) -> None:
    path = minimal(tmp_path / "RDS.db", all_hashes(10))
    opened(path)
    beside = tmp_path / "RDS.db-wal"
    beside.write_bytes(b"")
    opened(path)
    beside.write_bytes(b"something")
    assert refused(path).kind is Kind.UNFINISHED


def test_changes_beside_a_database_that_a_link_leads_to_are_found(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    path = minimal(tmp_path / "there" / "RDS.db", all_hashes(10))
    link = tmp_path / "RDS.db"
    link.symlink_to(path)
    assert_holds(opened(link), "sha256", 10)
    path.with_name("RDS.db-journal").write_bytes(b"something")
    assert refused(link).kind is Kind.UNFINISHED


def test_long_values_are_refused_and_take_no_memory(tmp_path: Path) -> None:
    path = made(
        tmp_path / "long.db",
        "CREATE TABLE t (i INTEGER, x TEXT)",
        f"CREATE VIEW FILE AS SELECT {'||'.join(['x'] * 100)} AS md5 FROM t",
        rows=("INSERT INTO t VALUES (?, ?)", [(number, "0" * 1000) for number in range(1000)]),
    )
    tracemalloc.start()
    try:
        fault = refused(path)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (fault.kind, fault.line) == (Kind.NO_HASH, 1)
    # All values together have 100 MB.
    assert most < 32 << 20


def test_other_and_damaged_databases_are_refused(tmp_path: Path) -> None:
    other = made(tmp_path / "other.db", "CREATE TABLE places (url TEXT)")
    assert refused(other).kind is Kind.NO_TABLE
    named = made(tmp_path / "named.db", "CREATE TABLE FILE (name TEXT)")
    assert refused(named).kind is Kind.NO_TABLE
    empty = made(tmp_path / "empty.db", MINIMAL)
    assert refused(empty).kind is Kind.EMPTY
    whole = minimal(tmp_path / "whole.db", all_hashes(500)).read_bytes()
    cut = tmp_path / "cut.db"
    cut.write_bytes(whole[: len(whole) // 2])
    assert refused(cut).kind is Kind.DAMAGED


@pytest.mark.parametrize(
    "view",
    [
        # No end, rows without end, and work without rows.
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT 1 AS md5 FROM n",
        f"SELECT '{'0' * 32}' AS md5 FROM t a, t b, t c, t d, t e",
        "SELECT 1 AS md5 FROM t a, t b, t c, t d, t e WHERE a.i + b.i + c.i + d.i + e.i < 0",
        "SELECT hex(zeroblob(1000000000)) AS md5",
    ],
)
def test_a_hostile_view_ends_with_a_refusal(tmp_path: Path, view: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "_STEPS", 10_000)
    monkeypatch.setattr(databases, "_STEPS_PER_BYTE", 1)
    path = made(
        tmp_path / "hostile.db",
        "CREATE TABLE t (i INTEGER)",
        f"CREATE VIEW FILE AS {view}",
        rows=("INSERT INTO t VALUES (?)", [(number,) for number in range(100)]),
    )
    assert refused(path).kind in (Kind.TOO_LARGE, Kind.DAMAGED)


def encase_set(md5: list[str]) -> bytes:
    records = b"".join(bytes.fromhex(one) + b"\x02\0" for one in md5)
    return (encase.START + b"\x02\0\0\0").ljust(encase.HEADER_BYTES, b"\0") + records


def test_a_hash_set_of_encase_is_searched_by_md5(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encase, "_RECORDS", 7)
    path = tmp_path / "set.hash"
    path.write_bytes(encase_set(hashes("md5", 300)))
    assert_holds(opened(path), "md5", 300)


def test_a_hash_set_of_encase_that_is_cut_changed_or_empty_is_refused(tmp_path: Path) -> None:
    whole = encase_set(hashes("md5", 30))
    path = tmp_path / "set.hash"
    for content, kind in (
        (whole[:-1], Kind.CUT),
        (whole[:1000], Kind.CUT),
        (whole.replace(b"\r\n\xff", b"\n\xff", 1), Kind.OTHER_HEADER),
        (whole.replace(b"\r\n\xff\0", b"\r\n\xff\1", 1), Kind.OTHER_HEADER),
        (whole[: encase.HEADER_BYTES], Kind.EMPTY),
    ):
        path.write_bytes(content)
        assert refused(path).kind is kind


@pytest.mark.parametrize("algorithm", ["md5", "sha1"])
def test_an_index_of_hfind_is_a_list(tmp_path: Path, algorithm: str) -> None:
    path = tmp_path / f"NSRLFile.txt-{algorithm}.idx"
    head = f"{'0' * 41}|nsrl\n{'0' * 40}1|NSRLFile.txt\n"
    lines = (f"{one.upper()}|{at:016}\n" for at, one in enumerate(sorted(hashes(algorithm, 300))))
    path.write_text(head + "".join(lines))
    assert_holds(opened(path), algorithm, 300)


@pytest.mark.parametrize(
    ("text", "kind", "line"),
    [
        ("sha256,name\n" + hashes("md5", 1)[0] + ",x\n", Kind.OTHER_LENGTH, 2),
        ("name,sha256\nx," + hashes("md5", 1)[0] + "\n", Kind.OTHER_LENGTH, 2),
        ("name,sha256\nx," + hashes("sha256", 1)[0] + "\ny," + "g" * 64 + "\n", Kind.NO_HASH, 3),
        (hashes("md5", 1)[0] + "\n" + hashes("sha1", 1)[0] + "\n", Kind.OTHER_LENGTH, 2),
        ("nothing\n", Kind.NO_HASH, 1),
        ("# nothing\n", Kind.EMPTY, None),
    ],
)
def test_a_text_list_is_refused_with_its_kind_and_line(tmp_path: Path, text: str, kind: Kind, line: int | None) -> None:
    path = tmp_path / "list.txt"
    path.write_text(text)
    fault = refused(path)
    assert (fault.kind, fault.line) == (kind, line)
    # As a worker sends it.
    again = pickle.loads(pickle.dumps(fault))
    assert (again.kind, again.path, again.line, str(again)) == (kind, str(path), line, str(fault))
