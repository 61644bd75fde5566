"""Keywords in names are found once, while the listing is made."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import triage_images
from conftest import noise, program, run
from triage_workers import Alone

from cheetah.triage.hub.closing import DONE, FAILED
from cheetah.triage.hub.run import Run
from cheetah.triage.listing import walk
from cheetah.triage.search import name_search, scan
from cheetah.triage.settings import Settings
from cheetah.triage.task import Event

Found = list[tuple[str, str, str]]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ext4 volume in which the names of two files and a folder hold the keyword, and no content does."""
    folder = tmp_path_factory.mktemp("named")
    tree = folder / "tree"
    for name in ("home/ann/Passwords.txt", "home/ann/new PASSWORD list/a.bin", "srv/password.old", "srv/other.txt"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(noise(3000, len(name)))
    image = folder / "named.raw"
    run(program("mkfs.ext4"), "-q", "-d", tree, image, "8M")
    run(program("debugfs"), "-w", "-R", "rm /srv/password.old", image)
    return image


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The searched names."""
    path = tmp_path_factory.mktemp("words") / "words.txt"
    path.write_text("password\nof a folder\nübergröße\nnever\n")
    return path


def triage(
    image: Path, out: Path, words: Path, tell: Callable[[Event], None] = lambda event: None, **more: Any
) -> tuple[int, Found]:
    """A run, and its findings in names: address, path and keyword."""
    settings: dict[str, Any] = {"workers": 2, "keywords": (str(words),), **more}
    code, _ = Run(Settings(str(image), str(out), **settings), tell).go()
    rows = pq.read_table(out / "findings.parquet").to_pylist()
    return code, sorted((row["address"], row["path"], row["rule"]) for row in rows if row["kind"] == "name")


def by_ifind(image: Path, path: str) -> str:
    """The address that The Sleuth Kit's own program finds for a path."""
    return run(program("ifind"), "-n", path, image).strip()


def test_a_keyword_in_a_name_is_found_once(image: Path, words: Path, tmp_path: Path) -> None:
    events: list[Event] = []
    code, found = triage(image, tmp_path / "out", words, events.append)
    assert code == DONE
    alive = {path: by_ifind(image, path) for path in ("/home/ann/Passwords.txt", "/home/ann/new PASSWORD list")}
    gone = [(address, path) for address, path, _ in found if path not in alive]
    assert sorted(path for _, path, _ in found) == [*alive, "/srv/password.old"]
    assert {(path, address) for address, path, _ in found} >= set(alive.items())
    assert len(gone) == 1
    total = pq.read_metadata(tmp_path / "out/findings.parquet").num_rows
    assert events[-1].findings == total
    listed = [event for event in events if event.stage == "ranking"]
    assert listed[0].findings == 3, "matches in names are reported as soon as the listing is complete"
    assert "/srv/password.old" in {one.path for one in listed[0].latest}
    assert "Keyword in a name" in (tmp_path / "out/report.html").read_text(encoding="utf-8")


def test_a_file_with_a_keyword_in_its_name_scores_more_and_is_read_first(
    image: Path, words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cheetah.triage.hub.plan.QUICK_FILES", 1)
    triage(image, tmp_path / "out", words, quick=True)
    rows = {row["path"]: row for row in pq.read_table(tmp_path / "out/files.parquet").to_pylist()}
    assert [path for path, row in rows.items() if row["read_state"] == "whole"] == ["/home/ann/Passwords.txt"]
    assert rows["/home/ann/Passwords.txt"]["named"] == "password"
    assert rows["/srv/other.txt"]["named"] is None
    assert rows["/home/ann/new PASSWORD list"]["score"] > rows["/home/ann"]["score"]


def test_names_found_do_not_depend_on_workers_or_interruptions(image: Path, words: Path, tmp_path: Path) -> None:
    undisturbed = triage(image, tmp_path / "two", words)
    assert triage(image, tmp_path / "one", words, workers=1) == undisturbed

    def interrupt(event: Event) -> None:
        if event.stage == "ranking":
            raise KeyboardInterrupt

    events: list[Event] = []
    assert triage(image, tmp_path / "again", words, interrupt)[0] == FAILED
    assert triage(image, tmp_path / "again", words, events.append) == undisturbed
    assert next(event for event in events if event.stage == "ranking").findings == len(undisturbed[1])
    tables = [(tmp_path / out / "findings.parquet").read_bytes() for out in ("one", "two", "again")]
    assert tables[0] == tables[1] == tables[2]


def test_findings_of_a_discarded_listing_do_not_count(
    image: Path, words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = triage(image, tmp_path / "plain", words)
    monkeypatch.setattr(walk, "ENTRIES_FIRST", 4)
    monkeypatch.setattr("cheetah.triage.hub.run._start_workers", lambda uri, settings: Alone(uri, settings))
    # The limit is so low that the volume counts as tangled, and is listed again.
    monkeypatch.setattr(walk, "is_tangled", lambda directories, inodes: directories > 2)
    events: list[Event] = []
    assert triage(image, tmp_path / "tangled", words, events.append) == undisturbed
    assert next(event for event in events if event.stage == "ranking").findings == len(undisturbed[1])


def test_repeated_ntfs_names_are_found_once(words: Path, tmp_path: Path) -> None:
    image = triage_images.ntfs(tmp_path)
    _, found = triage(image, tmp_path / "out", words)
    assert [path for _, path, _ in found] == ["/d0/übergröße.dat", "/d0:of a folder"]
    assert found[0][0] == f"{by_ifind(image, '/d0/übergröße.dat')}-128-2"


def rows(*entries: tuple[str, int, int | None, str]) -> dict[str, list[Any]]:
    """Columns of a listing: address, inode, attribute type and path."""
    columns: dict[str, list[Any]] = {
        "address": [entry[0] for entry in entries],
        "inode": [entry[1] for entry in entries],
        "attr_type": [entry[2] for entry in entries],
        "path": [entry[3] for entry in entries],
    }
    columns["name"] = [path.rpartition("/")[2] for path in columns["path"]]
    for name, value in (("kind", "r"), ("name_kind", "r"), ("deleted", False)):
        columns[name] = [value] * len(entries)
    return columns


def test_rows_of_one_name_are_one_finding() -> None:
    looked = name_search.NameSearch(scan.Engine(["password", "zone"]), 0)
    named = looked.look(
        rows(
            ("5-48-2", 5, 48, "/a/Passwords.txt"),
            ("5-128-1", 5, 128, "/a/Passwords.txt"),
            ("5-128-4", 5, 128, "/a/Passwords.txt:Zone.Identifier"),
            ("5-128-5", 5, 128, "/a/Passwords.txt:my password"),
            ("5-48-3", 5, 48, "/b/password"),
            ("5-128-1", 5, 128, "/b/password"),
            ("6-128-1", 6, 128, "/b/nothing"),
            ("6-128-2", 6, 128, "/b/nothing:password"),
            ("7", 7, None, "/b/a:password"),
            ("8", 8, None, "/password/inside"),
        )
    )
    assert named == [*["password"] * 6, None, "password", "password", None]
    assert [(one.address, one.path, one.rule) for one in looked.findings()] == [
        ("5-128-1", "/a/Passwords.txt", "password"),
        ("5-128-4", "/a/Passwords.txt:Zone.Identifier", "zone"),
        ("5-128-1", "/b/password", "password"),
        ("6-128-2", "/b/nothing:password", "password"),
        ("7", "/b/a:password", "password"),
    ]
    assert "stream" in looked.findings()[1].detail


@pytest.mark.parametrize("count", [1, 999, 1000, 5000])
def test_more_names_than_the_engine_counts_at_once_are_all_found(count: int) -> None:
    called = [f"IMG_{number}.jpg".encode() if number % 2 else b"Ae img_" * 9 for number in range(count)]
    found = list(name_search.find(scan.Engine(["img_", "jpg"]), called))
    assert sorted(number for number, _, word in found if word == "img_") == list(range(count))
    assert sorted(number for number, _, word in found if word == "jpg") == list(range(1, count, 2))
    assert {place for number, place, word in found if word == "img_" and not number % 2} == {3}


def test_a_million_names_are_searched_quickly() -> None:
    looked = name_search.NameSearch(scan.Engine(["img_", "password"]), 0)
    other = rows(*((str(number), number, None, f"/f/file{number}") for number in range(8192)))
    pictures = rows(*((str(number), number, None, f"/f/IMG_{number}.jpg") for number in range(8192)))
    for columns in itertools.chain(itertools.repeat(other, 115), itertools.repeat(pictures, 8)):
        looked.look(columns)
    looked.look(rows(("1", 1, None, "/f/password")))
    *pictures_found, last_picture, password = looked.findings()
    assert password.path == "/f/password"
    assert len(pictures_found) + 1 == name_search.FINDINGS_MAX
    assert f"{8 * 8192 - name_search.FINDINGS_MAX} more names" in last_picture.detail
    assert not any("more" in one.detail for one in pictures_found)


def test_a_slow_name_search_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = scan.Engine(["password"])

    def give_up(data: bytes) -> Iterator[scan.Hit]:
        raise scan.TooLong("bytes 0 to 9 were not searched", [])

    monkeypatch.setattr(engine, "scan", give_up)
    looked = name_search.NameSearch(engine, 0)
    assert looked.look(rows(("1", 1, None, "/password"))) == [None]
    assert looked.trouble is not None and "bytes 0 to 9" in looked.trouble
