"""`Device.search` and `Device.parts`: hits, coverage, and the nodes that hold what is searched."""

import gzip
import json
import random
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import PATIENCE_S, run

import cheetah

SIZE = 5 << 20
WORDS = ("Geheim", "Überweisung")
# A word that lies far from the edges of two units of a stripe that follow each other.
INSIDE = "Zeugnis"


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """An image with words in several encodings, one of them where two parts of a search meet."""
    content = bytearray(SIZE)
    for offset, text in [
        (0, WORDS[0].encode()),
        ((1 << 20) - 5, WORDS[0].encode("utf-16le")),
        ((2 << 20) + (32 << 10), INSIDE.encode()),
        ((2 << 20) + (96 << 10), INSIDE.encode()),
        ((3 << 20) + 7, WORDS[1].encode("cp1252")),
        ((4 << 20), b"mail to anna@example.org today"),
        (SIZE - len(WORDS[0]), WORDS[0].encode()),
    ]:
        content[offset : offset + len(text)] = text
    path = tmp_path / "disk.raw"
    path.write_bytes(content)
    return path


@pytest.fixture
def drive(tmp_path: Path, image: Path, binary: str) -> Iterator[Path]:
    """A drive with the image on two nodes, one of which lends its processor."""
    argv = [binary, "--json", "node", "--memory", "16MiB", "--listen", "127.0.0.1:0"]
    running = [subprocess.Popen([*argv, *more], stdout=subprocess.PIPE, text=True) for more in (["--scan", "1"], [])]
    try:
        nodes = ",".join(json.loads(node.stdout.readline())["nbd"] for node in running if node.stdout)
        path = tmp_path / "case.drive"
        run(binary, "create", path, "--nodes", nodes, "--from", image)
        yield path
    finally:
        for node in running:
            node.terminate()
            node.wait(PATIENCE_S)


def test_words_are_found_in_each_encoding_with_the_whole_source_covered(image: Path, tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("\n".join(WORDS), encoding="utf-8")
    with cheetah.open(image) as device:
        hits = device.search(words, encodings=["utf-8", "utf-16le", "cp1252"])
        found = [(hit.offset, hit.length, hit.pattern, hit.encoding) for hit in hits]
        assert (0, 6, "Geheim", "utf-8") in found
        assert ((1 << 20) - 5, 12, "Geheim", "utf-16le") in found
        assert ((3 << 20) + 7, 11, "Überweisung", "windows-1252") in found
        assert [offset for offset, *_ in found] == sorted(offset for offset, *_ in found)
        coverage = hits.coverage
        assert coverage.complete and coverage.gaps == () and coverage.at_nodes is None
        assert {one.pattern: one.hits for one in coverage.patterns} == {
            word: sum(pattern == word for _, _, pattern, _ in found) for word in WORDS
        }
        assert list(hits) == []


def test_regexes_and_kinds_of_data_are_found_with_their_context(image: Path) -> None:
    with cheetah.open(image) as device:
        (mail,) = device.search(kinds=["email"], encodings=["utf-8"], context_bytes=6)
        assert (mail.text, mail.context) == ("anna@example.org", "il to anna@example.org today")
        (match,) = device.search(regexes=[r"to [a-z]{1,9}@"])
        assert (match.offset, match.text) == ((4 << 20) + 5, "to anna@")
        assert [hit.text for hit in device.search(["GEHEIM"], ignore_case=True, encodings=["utf-8"])] == ["Geheim"] * 2


def test_a_table_has_the_hits_that_were_not_taken(image: Path) -> None:
    with cheetah.open(image) as device:
        hits = device.search(WORDS, encodings=["utf-8"])
        assert next(hits).offset == 0
        assert not hits.coverage.complete or hits.coverage.searched_bytes == SIZE
        table = hits.to_arrow()
        assert table.column_names == [
            "offset",
            "length",
            "pattern",
            "encoding",
            "text",
            "context",
            "inside",
            "node",
            "instance",
        ]
        assert table["offset"].to_pylist() == [SIZE - len(WORDS[0])]
        assert device.search(["nowhere"]).to_arrow().num_rows == 0
        assert hits.coverage.complete


def test_compressed_data_are_searched_once_the_source_is(image: Path) -> None:
    at = (2 << 20) + 99
    inner = gzip.compress(bytes(70) + b"Geheim" + bytes(70))
    outer = gzip.compress(bytes(30) + b"Geheim" + bytes(30) + inner)
    with image.open("r+b") as file:
        file.seek(at)
        file.write(outer)
    with cheetah.open(image) as device:
        hits = device.search(WORDS[:1], encodings=["utf-8"], inside=["gzip", "zip"])
        assert next(hits).inside is None and not hits.coverage.complete
        found = [(hit.offset, hit.length, hit.text, hit.inside) for hit in hits]
        assert found == [
            (SIZE - 6, 6, "Geheim", None),
            (at, 6, "Geheim", "GZIP-30"),
            (at, 6, "Geheim", "GZIP-66-GZIP-70"),
        ]
        coverage = hits.coverage
        assert coverage.complete and coverage.inside is not None and coverage.inside.finished
        assert (coverage.truncated, coverage.truncated_bytes) == ((), 0)
        assert (coverage.inside.streams, coverage.inside.hits, coverage.inside.damaged) == (2, 2, 0)
        assert [(one.kind, one.hits) for one in coverage.patterns] == [("word", 4)]
        assert device.search(WORDS[:1]).coverage.inside is None
        table = device.search(["Geheim"], encodings=["utf-8"], inside=["gzip"]).to_arrow()
        assert table["inside"].to_pylist() == [None, None, "GZIP-30", "GZIP-66-GZIP-70"]


def test_what_is_left_of_known_files_is_found_with_their_shares(image: Path, tmp_path: Path) -> None:
    block = 4096
    content = random.Random(7).randbytes(10 * block)
    folder = tmp_path / "known"
    folder.mkdir()
    (folder / "a.jpg").write_bytes(content)
    (folder / "b.jpg").write_bytes(random.Random(8).randbytes(10 * block))
    with image.open("r+b") as file:
        file.seek((2 << 20) + 512)
        file.write(content[3 * block : 8 * block])
    with cheetah.open(image) as device:
        hits = device.search(known=folder)
        assert hits.known is None and list(hits) == []
        known = hits.known
        assert known is not None and known.singles == 0
        assert [(run.offset, run.length, Path(run.file).name, run.file_offset) for run in known.runs] == [
            ((2 << 20) + 512, 5 * block, "a.jpg", 3 * block),
        ]
        assert [(Path(one.file).name, one.blocks, one.found) for one in known.files] == [
            ("a.jpg", 10, 5),
            ("b.jpg", 10, 0),
        ]
        assert hits.coverage.complete and hits.coverage.patterns == ()
        found = device.search(WORDS[:1], encodings=["utf-8"], known=[folder / "b.jpg", str(folder / "a.jpg")])
        assert len(list(found)) == 2 and found.known is not None and len(found.known.runs) == 1
        (folder / "link").symlink_to("a.jpg")
        with pytest.warns(UserWarning, match="1 links or special files are left out"):
            device.search(known=folder)


def test_a_stored_set_takes_the_place_of_known_files(image: Path, tmp_path: Path, binary: str) -> None:
    block = 4096
    content = random.Random(7).randbytes(10 * block)
    (tmp_path / "a.jpg").write_bytes(content)
    with image.open("r+b") as file:
        file.seek(2 << 20)
        file.write(content[3 * block : 8 * block])
    stored = tmp_path / "a.blocks"
    run(binary, "search", image, "--known", tmp_path / "a.jpg", "--save-known", stored, "--out", tmp_path / "found")
    with cheetah.open(image) as device:
        of_files, of_set = (device.search(known=tmp_path / "a.jpg"), device.search(blocks=stored))
        assert list(of_files) == list(of_set) == []
        assert of_set.known == of_files.known and of_set.known is not None and len(of_set.known.runs) == 1
        with pytest.raises(ValueError, match="leave one out"):
            device.search(known=[tmp_path / "a.jpg"], blocks=stored)
        with pytest.raises(cheetah.Error):
            device.search(blocks=tmp_path / "a.jpg")


def test_what_cannot_be_searched_is_an_error_with_the_reason(image: Path, tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_bytes(b"less than a block")
    with cheetah.open(image) as device:
        for wanted, why in [
            ({}, "nothing is searched for"),
            ({"kinds": ["shoe"]}, "shoe"),
            ({"words": ["a"], "encodings": ["utf-7"]}, "utf-7"),
            ({"regexes": ["a+"]}, "can match without limit"),
            ({"words": ["a"], "inside": ["rar"]}, "rar"),
            ({"known": tmp_path / "nowhere"}, "nowhere"),
            ({"known": [tmp_path / "short.txt"]}, "name larger files"),
        ]:
            with pytest.raises(cheetah.Error, match=re.escape(why)):
                device.search(**wanted)
        list_of_bytes = tmp_path / "words.txt"
        list_of_bytes.write_bytes(b"a\xff")
        with pytest.raises(cheetah.Error, match="is no text"):
            device.search(list_of_bytes)
    with pytest.raises(ValueError, match="is closed"):
        device.search(["a"])


def test_hits_outlive_the_device_and_a_search_may_be_dropped_at_any_time(image: Path) -> None:
    with cheetah.open(image) as device:
        dropped, kept = device.search(WORDS), device.search(WORDS)
        next(dropped)
    del dropped
    assert len(list(kept)) == 3 and kept.coverage.complete


def test_ranges_that_were_never_read_are_gaps(image: Path) -> None:
    with cheetah.open(image) as device:
        whole = [hit.offset for hit in device.search(WORDS)]
    map_path = Path(f"{image}.map")
    map_path.write_text(f"0x0 + 1\n0x0 0x100000 +\n0x100000 0x100000 ?\n0x200000 0x{SIZE - (2 << 20):x} +\n")
    with cheetah.open(image) as device:
        hits = device.search(WORDS)
        found = [hit.offset for hit in hits]
        coverage = hits.coverage
    assert found == [offset for offset in whole if offset != (1 << 20) - 5]
    assert not coverage.complete
    assert [(gap.offset, gap.length, gap.state) for gap in coverage.gaps] == [(1 << 20, 1 << 20, "unread")]
    assert coverage.unsearched_bytes == 1 << 20


def test_parts_cover_the_source_and_those_of_a_drive_name_their_hosts(image: Path, drive: Path) -> None:
    with cheetah.open(image) as device:
        parts = device.parts(2 << 20)
        assert [(part.offset, part.length, part.hosts) for part in parts] == [
            (0, 2 << 20, ()),
            (2 << 20, 2 << 20, ()),
            (4 << 20, 1 << 20, ()),
        ]
        assert [part.length for part in device.parts()] == [SIZE]
        for wrong in (0, 1):
            with pytest.raises(cheetah.Error, match="too small"):
                device.parts(wrong)
    with cheetah.open(drive) as device:
        parts = device.parts(2 << 20)
        assert sum(part.length for part in parts) == SIZE
        assert {part.hosts for part in parts} == {("127.0.0.1",)}


def test_nodes_search_what_they_hold_with_the_same_hits(image: Path, drive: Path) -> None:
    with cheetah.open(image) as device:
        here = [(hit.offset, hit.text, hit.context) for hit in device.search(WORDS, kinds=["email"])]
    with cheetah.open(drive) as device:
        hits = device.search([*WORDS, INSIDE], kinds=["email"], at_nodes=True)
        found = list(hits)
        assert [(hit.offset, hit.text, hit.context) for hit in found if hit.text != INSIDE] == here
        coverage = hits.coverage
    assert coverage.complete and coverage.at_nodes is not None
    (name,) = coverage.at_nodes["node_bytes"]
    assert any(hit.node == name for hit in found if hit.text == INSIDE)
    # What crosses from one unit into the next is found here.
    assert {hit.node for hit in found} <= {name, None}
    assert all((hit.node is None) == (hit.instance is None) for hit in found)
    assert sum(sum(of.values()) for of in coverage.at_nodes.values()) >= SIZE, coverage.at_nodes
