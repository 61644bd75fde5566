"""The division of a source, and the words of the program for a part."""

import dataclasses
import itertools
from collections.abc import Sequence

ALIGNMENT_BYTES = 1 << 20
PARTS_MAX = 9999
PLACEHOLDERS = ("image", "begin", "end", "length", "number")


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a source, from its first byte to the one after its last."""

    number: int
    begin: int
    end: int

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"part-{self.number:04}"


def divide(size_bytes: int, count: int) -> list[Part]:
    """Divides a source into nearly equal parts, which begin at whole MiB. Of a small source there are fewer."""
    units = max(1, -(-size_bytes // ALIGNMENT_BYTES))
    count = min(count, units)
    cuts = [min(size_bytes, units * at // count * ALIGNMENT_BYTES) for at in range(count + 1)]
    return [Part(number, begin, end) for number, (begin, end) in enumerate(itertools.pairwise(cuts), start=1)]


def words(command: Sequence[str], part: Part, image: str) -> list[str]:
    """Returns the program and its arguments for a part."""
    values = {
        "image": image,
        "begin": str(part.begin),
        "end": str(part.end),
        "length": str(part.end - part.begin),
        "number": str(part.number),
    }
    return [_replaced(word, values) for word in command]


def _replaced(word: str, values: dict[str, str]) -> str:
    """Replaces what is known in braces, in one pass: a value is not looked at again, and other braces stay."""
    made, rest = "", word
    while rest:
        before, brace, after = rest.partition("{")
        name, closing, behind = after.partition("}")
        if closing and name in values:
            made, rest = made + before + values[name], behind
        else:
            made, rest = made + before + brace, after
    return made
