"""Names and excerpts as the evidence has them, made safe to look at.

A file name is written by whoever made it. It may hold control characters that move a terminal's cursor, marks that
reverse the direction of writing (`gpj.exe` that shows as `exe.jpg`), characters that have no width, halves of
surrogate pairs. None of these is ever printed as it is: each is shown as its code point, `U+202E`.
"""

import collections.abc
import typing
import unicodedata

# More marks than this on one letter are there to hide something.
MARKS_MAX = 3
# Longer texts lose their middle.
TEXT_CHARS_MAX = 1000

_UNSAFE = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
_MARKS = frozenset(("Mn", "Me"))


class Piece(typing.NamedTuple):
    """A part of a text: `shown` is what to print; `coded` whether it stands for something that cannot be."""

    shown: str
    coded: bool


def decoded(content: bytes | str | None) -> str:
    """Text from the tables. What is no UTF-8 stays apart from what is: each such byte is a lone surrogate."""
    if content is None:
        return ""
    return content if isinstance(content, str) else content.decode("utf-8", "surrogateescape")


def pieces(text: str, chars_max: int = TEXT_CHARS_MAX) -> collections.abc.Iterator[Piece]:
    """The parts of `text`, of which at most `chars_max` characters are shown."""
    if len(text) <= chars_max:
        yield from _pieces(text)
        return
    kept = chars_max // 2
    yield from _pieces(text[:kept])
    yield Piece(f"{len(text) - 2 * kept} characters left out", True)
    yield from _pieces(text[-kept:])


def plain(text: str, chars_max: int = TEXT_CHARS_MAX) -> str:
    """`text` for a terminal or a log: what is not safe stands in ⟨⟩."""
    return "".join(f"⟨{piece.shown}⟩" if piece.coded else piece.shown for piece in pieces(text, chars_max))


def _pieces(text: str) -> collections.abc.Iterator[Piece]:
    plain_run: list[str] = []
    # A mark at the start would sit on whatever is printed before it.
    marks = MARKS_MAX
    for position, character in enumerate(text):
        category = unicodedata.category(character)
        marks = marks + 1 if category in _MARKS else 0
        at_the_edge = character == " " and position in (0, len(text) - 1)
        odd_space = category == "Zs" and character != " "
        if not (category in _UNSAFE or odd_space or at_the_edge or marks > MARKS_MAX):
            plain_run.append(character)
            continue
        if plain_run:
            yield Piece("".join(plain_run), False)
            plain_run = []
        yield Piece(_code(character), True)
        marks = max(marks, MARKS_MAX)
    if plain_run:
        yield Piece("".join(plain_run), False)


def _code(character: str) -> str:
    value = ord(character)
    # What `surrogateescape` made of a byte that is no UTF-8.
    return f"0x{value - 0xDC00:02X}" if 0xDC80 <= value <= 0xDCFF else f"U+{value:04X}"
