"""Atoms of YARA rules, compared with the engine: what a rule matches has one of its atoms in it."""

import base64
import functools
import random
from pathlib import Path
from typing import Any

import pytest
import yara_x

import cheetah
from cheetah.triage.search import atoms

WORDS = ("geheim", "Programme", "cannot be run", "kernel32.dll", "Überweisung")
CASES = 300


def split(tmp_path: Path, source: str) -> atoms.Split:
    path = tmp_path / "rules.yar"
    path.write_text(source)
    return atoms.of([str(path)])


def occurs(found: atoms.Split, content: bytes) -> bool:
    """Whether an atom is in the content."""
    lower = content.lower()
    return any(atom in (lower if ignore_case else content) for atom, ignore_case in found.atoms)


@functools.lru_cache(maxsize=1)
def compiled(source: str) -> Any:
    return yara_x.compile(source)


def matches(source: str, content: bytes) -> bool:
    return bool(compiled(source).scan(content).matching_rules)


STRINGS = (
    ('"{word}"', lambda word, chance: word),
    ('"{word}" nocase', lambda word, chance: bytes(chance.choice((byte, byte ^ 32)) if chr(byte).isalpha() and byte < 128 else byte for byte in word)),
    ('"{word}" wide', lambda word, chance: b"".join(bytes((byte, 0)) for byte in word)),
    ('"{word}" ascii wide nocase fullword', lambda word, chance: b"".join(bytes((byte, 0)) for byte in word.upper())),
    ('"{word}" xor', lambda word, chance: bytes(byte ^ 77 for byte in word)),
    ('"{word}" xor(1-9) wide', lambda word, chance: bytes(byte ^ 5 for one in word for byte in (one, 0))),
    ('"{word}" base64', lambda word, chance: base64.b64encode(chance.randbytes(chance.randrange(5)) + word + b"more")),
    ('"{word}" base64wide', lambda word, chance: b"".join(bytes((byte, 0)) for byte in base64.b64encode(b"ab" + word + b"xyz"))),
    ('"{word}" wide base64', lambda word, chance: base64.b64encode(b"".join(bytes((byte, 0)) for byte in word))),
    ("/{word}[0-9]+/", lambda word, chance: word + b"42"),
    ("/{word}|other text/i", lambda word, chance: chance.choice((word, b"OTHER text"))),
    # Letters of ASCII have cases beyond it there.
    ("/(?u:{word})/i", lambda word, chance: word.replace(b"k", "\u212a".encode()).replace(b"s", "\u017f".encode())),
    ("/(x|{word}){{2,3}}/ wide", lambda word, chance: b"".join(bytes((byte, 0)) for byte in word * 2)),
)  # fmt: skip


@pytest.mark.parametrize("number", range(len(STRINGS)))
def test_what_a_string_matches_has_an_atom(tmp_path: Path, number: int) -> None:
    chance = random.Random(number)
    text, form = STRINGS[number]
    matched = 0
    for word in WORDS[:4]:
        source = f"rule tried {{ strings: $a = {text.format(word=word)} condition: $a }}"
        found = split(tmp_path, source)
        for _ in range(CASES // 10):
            content = chance.randbytes(chance.randrange(40)) + b" " + form(word.encode(), chance) + b" tail"
            if matches(source, content):
                matched += 1
                assert found.central or occurs(found, content), (source, content)
    assert matched


def test_what_random_conditions_match_has_an_atom(tmp_path: Path) -> None:
    chance = random.Random(7)
    leaves = [
        "$a",
        "$b",
        "$c",
        "any of them",
        "all of them",
        "2 of them",
        "none of them",
        "#a > 1",
        "#b == 0",
        "filesize > 60",
    ]
    leaves += ["$a at 0", "1 of ($a, $c)", "for any of ($a, $b) : (@ > 5)", "for all of them : (# < 3)", "50% of them"]
    split_rules = 0
    for _ in range(CASES):
        condition = chance.choice(leaves)
        for _ in range(chance.randrange(3)):
            operator = chance.choice((" and ", " or "))
            condition = f"{chance.choice(('', 'not '))}({condition}){operator}({chance.choice(leaves)})"
        strings = '$a = "first word" $b = "second word" nocase $c = { 74 68 69 72 64 20 ?? 6f 72 64 }'
        source = f"rule tried {{ strings: {strings} condition: {condition} or (false and any of them) }}"
        found = split(tmp_path, source)
        if found.central:
            continue
        split_rules += 1
        for _ in range(12):
            words = (b"first word", b"SECOND word", b"third word", b"first wor", b"other bytes")
            content = b" ".join(chance.choice(words) for _ in range(chance.randrange(6)))
            assert not matches(source, content) or occurs(found, content), (condition, content)
    assert split_rules > 20


def test_any_byte_of_an_atom_is_found_by_the_search(tmp_path: Path) -> None:
    content = bytes(range(1, 256)) + b"\0\x80"
    image = tmp_path / "disk.raw"
    image.write_bytes(bytes(5000) + content + bytes(5000))
    pieces = [content[start : start + 16] for start in range(0, 256, 15)]
    found = atoms.Split(tuple((piece, False) for piece in pieces), ())
    for ignore_case in (False, True):
        with cheetah.open(image) as device:
            hits = device.search(found.words, encodings=[atoms.ENCODING], ignore_case=ignore_case, context_bytes=0)
            offsets = {hit.offset for hit in hits}
        assert offsets >= {5000 + start for start in range(0, 256, 15)}
