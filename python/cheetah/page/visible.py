"""Text from evidence made safe to print.

A suspect chooses file names. They may hold control characters that move a terminal's cursor, marks that reverse the
direction of writing (`gpj.exe` shown as `exe.jpg`), characters without width, and halves of surrogate pairs. None is
printed raw: each is shown as its code point, such as `U+202E`.
"""

import collections.abc
import typing
import unicodedata

# More combining marks than this on one letter only serve to hide something.
MARKS_MAX = 3
# Longer texts lose their middle.
TEXT_CHARS_MAX = 1000

_UNSAFE = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
_MARKS = frozenset(("Mn", "Me"))


class TextPart(typing.NamedTuple):
    """A part of a text: `shown` is printed; `coded` says whether it stands for an unprintable character."""

    shown: str
    coded: bool


def decoded(content: bytes | str | None) -> str:
    """Returns text from the tables. Bytes that are not UTF-8 become lone surrogates."""
    if content is None:
        return ""
    return content if isinstance(content, str) else content.decode("utf-8", "surrogateescape")


def text_parts(text: str, chars_max: int = TEXT_CHARS_MAX) -> collections.abc.Iterator[TextPart]:
    """Returns the parts of `text`, limited to `chars_max` characters."""
    if len(text) <= chars_max:
        yield from _pieces(text)
        return
    kept = chars_max // 2
    yield from _pieces(text[:kept])
    yield TextPart(f"{len(text) - 2 * kept} characters omitted", True)
    yield from _pieces(text[-kept:])


def plain(text: str, chars_max: int = TEXT_CHARS_MAX) -> str:
    """Returns `text` for a terminal or a log, with codes of unsafe characters in ⟨⟩."""
    return "".join(f"⟨{piece.shown}⟩" if piece.coded else piece.shown for piece in text_parts(text, chars_max))


def _pieces(text: str) -> collections.abc.Iterator[TextPart]:
    plain_run: list[str] = []
    # A mark at the start would combine with the text printed before it.
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
            yield TextPart("".join(plain_run), False)
            plain_run = []
        yield TextPart(_code(character), True)
        marks = max(marks, MARKS_MAX)
    if plain_run:
        yield TextPart("".join(plain_run), False)


def _code(character: str) -> str:
    value = ord(character)
    # `surrogateescape` maps a byte that is not UTF-8 to this range.
    return f"0x{value - 0xDC00:02X}" if 0xDC80 <= value <= 0xDCFF else f"U+{value:04X}"
