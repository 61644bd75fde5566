"""Damaged bytes: readable ones are read, unreadable ones reported, and untried ones distinguished."""

import random
from pathlib import Path

import pytest
from conftest import MIB, noise
from triage_worker import Raw, entries, fat, worker

from cheetah.triage.content import analysis, unallocated
from cheetah.triage.reading import image, salvage

KIB = 1 << 10
WORD = b"Rosenkohl"


def of(bad: list[tuple[int, int]], end: int) -> tuple[list[salvage.ReadPiece], int]:
    """The pieces of a disk with bad ranges, and how many reads failed."""
    failed = 0

    def read(offset: int, length: int) -> bytes | None:
        nonlocal failed
        if any(offset < last and offset + length > first for first, last in bad):
            failed += 1
            return None
        return bytes(length)

    found = list(salvage.of(read, 0, end))
    assert [piece.offset for piece in found] == [0, *(piece.offset + piece.length for piece in found[:-1])]
    assert sum(piece.length for piece in found) == end
    return found, failed


def test_scattered_bad_sectors_lose_only_themselves() -> None:
    chance = random.Random(3)
    bad = [(place, place + 512) for place in (chance.randrange(64 * MIB // 512) * 512 for _ in range(100))]
    found, _ = of(bad, 64 * MIB)
    lost = {piece.offset // salvage.LEAST_BYTES for piece in found if piece.content is None}
    assert lost == {first // salvage.LEAST_BYTES for first, _ in bad}
    assert not any(piece.given_up for piece in found)


def test_a_long_unreadable_range_is_given_up_quickly() -> None:
    dead = (MIB + 5 * KIB, 41 * MIB + 300 * KIB)
    found, failed = of([dead], 64 * MIB)
    behind = [piece for piece in found if piece.offset + piece.length > 41 * MIB + 304 * KIB]
    before = [piece for piece in found if piece.offset < MIB + 4 * KIB]
    assert all(piece.content is not None for piece in before + behind)
    assert sum(piece.length for piece in found if piece.given_up) > 39 * MIB
    assert failed < 200
    # Ranges that were tried completely are listed separately from those given up.
    assert [piece for piece in found if piece.content is None and not piece.given_up]


def test_an_unreadable_end_terminates() -> None:
    found, _ = of([(0, 3 * MIB)], 2 * MIB + 100)
    assert not any(piece.content for piece in found)


@pytest.fixture(scope="module")
def stick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stick with a file of 4 MiB, and a deleted one behind it, that ends with the word."""
    data = bytearray(noise(4 * MIB, 5))
    data[:16] = b"this is the file"
    gone = bytearray(noise(4 * MIB, 6))
    gone[:16], gone[-20 : -20 + len(WORD)] = b"this is the gone", WORD
    folder = tmp_path_factory.mktemp("pieces")
    return fat(folder / "stick.raw", {"BIG.BIN": bytes(data), "GONE.BIN": bytes(gone)}, ["GONE.BIN"])


def at(stick: Path, what: bytes) -> int:
    return stick.read_bytes().find(what)


def test_a_file_with_bad_sectors_is_read_except_for_them(stick: Path) -> None:
    where = at(stick, b"this is the file")
    bad = [(where + 128 * KIB * number, where + 128 * KIB * number + 512) for number in range(25)]
    result = analysis.analyse(worker(stick, "fat16", Raw(stick, *bad)), [entries(stick)["/BIG.BIN"]])
    assert result.rows is not None
    (row,) = result.rows.to_pylist()
    assert (row["read_state"], row["bytes_read"], row["sha256"]) == ("partial", 4 * MIB - 25 * 4 * KIB, None)
    assert f"{25 * 4 * KIB} of its {4 * MIB} bytes could not be read" in row["why"] and "given up" not in row["why"]
    assert len(result.problems) == 25


def test_given_up_and_failed_bytes_are_distinguished(stick: Path) -> None:
    where = at(stick, b"this is the file")
    source = Raw(stick, (where + MIB, where + 3 * MIB))
    result = analysis.analyse(worker(stick, "fat16", source), [entries(stick)["/BIG.BIN"]])
    assert result.rows is not None
    (row,) = result.rows.to_pylist()
    assert (row["read_state"], row["bytes_read"]) == ("partial", 2 * MIB)
    assert f"{64 * KIB} of its {4 * MIB} bytes could not be read" in row["why"]
    assert f"{2 * MIB - 64 * KIB} bytes were given up" in row["why"]
    assert [(problem.offset, problem.length) for problem in result.problems] == [(where + MIB, 64 * KIB)]


def test_an_untried_file_is_not_called_unreadable(stick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = at(stick, b"this is the file")
    one = worker(stick, "fat16", Raw(stick, (where, where + 4 * MIB)))
    monkeypatch.setattr(image, "GONE_S", -1.0)
    batch = [entries(stick)["/BIG.BIN"]]
    analysis.analyse(one, batch)
    result = analysis.analyse(one, batch)
    assert result.rows is not None and result.problems
    (row,) = result.rows.to_pylist()
    assert row["read_state"] == "unread" and "may be readable" in row["why"]


def test_unallocated_space_after_bad_sectors_is_searched(stick: Path, tmp_path: Path) -> None:
    (tmp_path / "words").write_bytes(WORD)
    where, word = at(stick, b"this is the gone"), at(stick, WORD)
    bad = [(where + 128 * KIB * number, where + 128 * KIB * number + 512) for number in range(25)]
    one = worker(stick, "fat16", Raw(stick, *bad), keywords=(str(tmp_path / "words"),))
    result = unallocated.scan(one, 0, 0, stick.stat().st_size)
    assert [finding.offset for finding in result.findings] == [word]
    assert len(result.problems) == 25 and all("could not be read" in one.sentence for one in result.problems)
    lost = sum(problem.length or 0 for problem in result.problems)
    assert lost == 25 * 4 * KIB

    one = worker(stick, "fat16", Raw(stick, (where, where + 3 * MIB)), keywords=(str(tmp_path / "words"),))
    result = unallocated.scan(one, 0, 0, stick.stat().st_size)
    assert [finding.offset for finding in result.findings] == [word]
    failed, given_up = result.problems
    assert "could not be read" in failed.sentence and "given up" in given_up.sentence
    assert (failed.length, given_up.length) == (64 * KIB, 3 * MIB - 64 * KIB)
