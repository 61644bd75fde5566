"""Footnotes: sentences that many cells refer to, each printed once."""

from collections.abc import Iterable

from cheetah.bench.cells import Note

_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
EXAMPLE = "for example: "


class Notes:
    """The footnotes of a table in the order of their first reference, one of each kind."""

    def __init__(self) -> None:
        self._texts: dict[str, dict[str, None]] = {}

    def number(self, note: Note) -> int:
        """Returns its number, from 1; notes of one kind share one."""
        self._texts.setdefault(note.kind, {})[note.text] = None
        return list(self._texts).index(note.kind) + 1

    def marks(self, notes: Iterable[Note]) -> str:
        """Returns superscript numbers to follow a figure."""
        return "˒".join(str(self.number(note)).translate(_RAISED) for note in notes)

    def items(self) -> list[tuple[int, str]]:
        """Returns all footnotes; of several that differ in numbers, the first as an example."""
        return [(number, example(list(texts))) for number, texts in enumerate(self._texts.values(), start=1)]


def example(texts: list[str]) -> str:
    """Returns the only text, or the first as an example."""
    return texts[0] if len(texts) == 1 else f"{EXAMPLE}{texts[0]}"
