"""Keywords and rules are found once, in every encoding, wherever the pieces of a file end."""

import random
from pathlib import Path

import pytest

from cheetah.triage.search import list_text, scan

RULES = [
    (
        "evil.yar",
        'rule Evil {meta: description = "An evil rule" strings: $a = "EVIL" $b = {01 02 03 04} condition: all of them}',
    ),
    ("name.yar", 'rule Name { condition: filename == "x.txt" and extension == ".txt" }'),
    ("large.yar", "rule Large { condition: filesize > 1MB }"),
]


def hits(engine: scan.Engine, data: bytes) -> dict[str, scan.Hit]:
    return {hit.rule: hit for hit in engine.scan(data)}


def test_a_keyword_is_found_in_any_case_as_utf8_and_utf16() -> None:
    engine = scan.Engine(["Geheim", "Straße", "Käse", 'C:\\Windows "x"', "東京", "a.b+c", "Ελλάδα"])
    for keyword in (
        "geheim",
        "GEHEIM",
        "gEhEiM",
        "straße",
        "KÄSE",
        "käse",
        'c:\\windows "X"',
        "東京",
        "A.B+C",
        "ΕΛΛΆΔΑ",
    ):
        for encoding in ("utf-8", "utf-16-le"):
            data = b"\x80xyz" + keyword.encode(encoding) + b"\x80"
            (hit,) = engine.scan(data)
            assert (hit.offsets, hit.rule.lower()[:2]) == ([4], keyword.lower()[:2]), (keyword, encoding)
            assert keyword in hit.excerpts[0]
    assert not engine.scan(b"axbbc gehe im kase")


def test_an_excerpt_shows_printable_context() -> None:
    (hit,) = scan.Engine(["needle"]).scan(b"\x1b[31mred\0the needle\nand thread" + bytes(50))
    assert "red·the needle·and thread·" in hit.excerpts[0] and hit.excerpts[0].isprintable()
    (hit,) = scan.Engine(["needle"]).scan(b"\x01\x02" + "the needle, and".encode("utf-16-le"))
    assert hit.excerpts == ["the needle, and"]


def test_rules_see_the_files_name_and_keep_their_description() -> None:
    engine = scan.Engine([], RULES)
    engine.name("/Users/ann/x.txt")
    found = hits(engine, b"..EVIL\x01\x02\x03\x04")
    assert set(found) == {"Evil", "Name"}
    assert found["Evil"].detail(False) == "An evil rule; 2 matches at bytes 2, 6"
    engine.name("/y.txt")
    assert set(hits(engine, b"..EVIL")) == set()


def test_rules_that_do_not_compile_are_an_error_that_names_the_file() -> None:
    with pytest.raises(ValueError, match=r"bad\.yar: .*unknown identifier"):
        scan.Engine([], [("bad.yar", "rule x { condition: foo }")])


def test_bytes_of_rules_that_are_not_utf8_are_searched_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "latin.yar"
    path.write_bytes(b'\xef\xbb\xbfrule latin { /* f\xfcr */ strings: $a = "caf\xe9 bar" condition: $a }')
    engine = scan.Engine([], scan.read_rules([str(path)]))
    assert set(hits(engine, b"..caf\xe9 bar")) == {"latin"} and not hits(engine, "..caf\ufffd bar".encode())


def test_a_condition_sees_more_matches_than_are_listed() -> None:
    rules = """
        rule many { strings: $a = "AAAA" condition: #a > 2000 }
        rule few { strings: $a = "AAAA" condition: #a < 2000 }
        rule place { strings: $a = "AAAA" condition: $a at 15000 }
    """
    found = hits(scan.Engine([], [("a.yar", rules)]), b"AAAA " * 5000)
    assert set(found) == {"many", "place"}
    assert len(found["many"].offsets) == scan.MATCHES_MAX and found["many"].more


def test_files_of_rules_with_the_same_name_are_told_apart_by_their_paths(tmp_path: Path) -> None:
    paths = [tmp_path / "one/index.yar", tmp_path / "two/index.yar", tmp_path / "other.yar"]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.write_text("rule same { condition: true }")
    rules = scan.read_rules(map(str, paths))
    assert [name for name, _ in rules] == [str(paths[0]), str(paths[1]), "other.yar"]
    stream = scan.Stream(scan.Engine([], rules))
    stream.feed(b"word", 0)
    assert len(stream.finish()) == 3


@pytest.mark.parametrize("line", ["ab", "x" * 300])
def test_an_invalid_keyword_is_an_error_with_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "words"
    path.write_text(f"\ufeffgood\n\n  also good \n{line}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"words, line 4: "):
        scan.read_keywords(str(path))


def test_keywords_are_read_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "words"
    path.write_bytes("\ufeffgood\r\n\n  two words \n#3 is kept\n".encode())
    assert scan.read_keywords(str(path)) == ["good", "two words", "#3 is kept"]


ENDS = ("\n", "\r", "\r\n", "\x0b", "\x0c", "\x1e", "\x85", "\u2028", "\u2029")


@pytest.mark.parametrize("end", ENDS)
def test_a_keyword_list_may_have_any_line_ends(tmp_path: Path, end: str) -> None:
    path = tmp_path / "words"
    for text in (f"needle-word{end}other-word{end}", f"{end}needle-word{end}{end}other-word"):
        path.write_bytes(text.encode())
        assert scan.read_keywords(str(path)) == ["needle-word", "other-word"]
    path.write_bytes(f"good{end}ab{end}".encode())
    with pytest.raises(ValueError, match=r"words, line 2: "):
        scan.read_keywords(str(path))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "utf-32", "utf-32-be"])
def test_a_keyword_list_with_a_byte_order_mark_is_decoded(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "words"
    start = "\ufeff" if encoding.endswith("-be") else ""
    path.write_bytes((start + "Straße\r\nsecond\u2028third").encode(encoding))
    assert scan.read_keywords(str(path)) == ["Straße", "second", "third"]


def test_lists_that_were_joined_may_have_marks_in_the_middle(tmp_path: Path) -> None:
    path = tmp_path / "words"
    path.write_bytes("\ufefffirst\n\ufeffsecond\n".encode())
    assert scan.read_keywords(str(path)) == ["first", "second"]


@pytest.mark.parametrize("content", ["good\nw\0o\0r\0d\0", "good\nwo\x07rd", "good\nwo\x9frd"])
def test_a_keyword_with_a_control_character_is_refused_with_its_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "words"
    path.write_bytes(content.encode())
    with pytest.raises(ValueError, match=r"words, line 2: .*control character"):
        scan.read_keywords(str(path))


def test_a_line_end_between_two_pieces_of_a_list_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "words"
    words = [f"word{number}" for number in range(300)]
    for size in (1, 2, 3, 7):
        monkeypatch.setattr(list_text, "PIECE_BYTES", size)
        for end in ENDS:
            path.write_bytes(end.join(words).encode())
            with list_text.open_list(str(path)) as file:
                assert file.read().decode().replace("\r\n", "\n").split("\n") == words


@pytest.mark.parametrize("seed", range(20))
def test_a_match_across_pieces_and_windows_is_found_once(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(scan, "WINDOW_BYTES", 1000)
    monkeypatch.setattr(scan, "OVERLAP_BYTES", 100)
    chance = random.Random(seed)
    engine = scan.Engine(["geheim"], RULES)
    data = bytearray(chance.randbytes(6000))
    for _ in range(15):
        place = chance.randrange(5990)
        data[place : place + 6] = b"geheim"
    place = chance.randrange(5900)
    data[place : place + 50] = b"EVIL" + bytes(42) + b"\x01\x02\x03\x04"
    stream, place = scan.Stream(engine), 0
    while place < len(data):
        size = chance.randint(1, 1500)
        stream.feed(bytes(data[place : place + size]), place)
        place += size
    found = {hit.rule: hit for hit in stream.finish()}
    text = bytes(data)
    assert found["geheim"].offsets == [at for at in range(len(text)) if text[at : at + 6] == b"geheim"]
    assert found["Evil"].offsets[0] == text.find(b"EVIL")


@pytest.mark.parametrize("seed", range(20))
def test_full_words_in_windows_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(scan, "WINDOW_BYTES", 100)
    monkeypatch.setattr(scan, "OVERLAP_BYTES", 50)
    rules = 'rule Full { strings: $a = "geheim" ascii wide fullword $b = /heim[a-z]?/ fullword condition: any of them }'
    engine = scan.Engine(["heim"], [("full.yar", rules)], keeps_matches=True)
    chance = random.Random(seed)
    forms = [b"geheim", "geheim".encode("utf-16-le"), b"heim", b"x", b"x\0", b" ", b" \0", b"\0"]
    data = b"".join(chance.choices(forms, k=300))
    stream, place = scan.Stream(engine), 0
    while place < len(data):
        size = chance.randint(1, 150)
        stream.feed(data[place : place + size], place)
        place += size
    whole = engine.scan(data)
    found = {hit.rule: (hit.offsets, hit.matches) for hit in stream.finish()}
    assert stream.in_pieces and found == {hit.rule: (hit.offsets, hit.matches) for hit in whole}


def test_a_word_behind_a_window_that_ends_in_the_middle_of_it_is_no_full_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "WINDOW_BYTES", 100)
    monkeypatch.setattr(scan, "OVERLAP_BYTES", 50)
    rules = 'rule Full { strings: $a = "geheim" ascii wide fullword condition: $a }'
    for before, is_found in ((b"x", False), (b" ", True), (b"x\0", False), (b" \0", True)):
        stream = scan.Stream(scan.Engine([], [("full.yar", rules)]))
        word = "geheim".encode("utf-16-le") if len(before) == 2 else b"geheim"
        stream.feed(bytes(98) + before.rjust(2, b"\0") + word + bytes(200), 0)
        assert [hit.offsets for hit in stream.finish()] == ([[100]] if is_found else []), before


def test_nothing_is_found_across_a_gap() -> None:
    engine = scan.Engine(["geheim"])
    stream = scan.Stream(engine)
    stream.feed(b"xxgeh", 0)
    stream.feed(b"eimxxgeheim", 10)
    (hit,) = stream.finish()
    assert hit.offsets == [15]


def test_many_matches_are_truncated_and_reported() -> None:
    (hit,) = scan.Engine(["abc"]).scan(b"abc" * 5000)
    assert len(hit.offsets) == scan.MATCHES_MAX and hit.more
    assert hit.detail(False).startswith(f"{scan.MATCHES_MAX} or more matches at bytes 0, 3,")


def test_thousands_of_keywords_are_searched() -> None:
    chance = random.Random(1)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=8)) for _ in range(5000)]
    data = f"xx {words[4711]} {words[0].upper()} ".encode() + chance.randbytes(1 << 20)
    assert set(hits(scan.Engine(words), data)) == {words[4711], words[0]}
