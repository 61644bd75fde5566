"""Footnotes: sentences that many cells may refer to, each written once."""

from collections.abc import Iterable

from cheetah.bench.cells import Note

_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
EXAMPLE = "for example: "


class Notes:
    """The footnotes of a table, in the order in which they are first referred to; of each kind one."""

    def __init__(self) -> None:
        self._texts: dict[str, dict[str, None]] = {}

    def number(self, note: Note) -> int:
        """From 1; notes of one kind have the same one."""
        self._texts.setdefault(note.kind, {})[note.text] = None
        return list(self._texts).index(note.kind) + 1

    def marks(self, notes: Iterable[Note]) -> str:
        """Raised numbers, to stand behind a figure."""
        return "˒".join(str(self.number(note)).translate(_RAISED) for note in notes)

    def items(self) -> list[tuple[int, str]]:
        """All of them; where several say the same with other numbers, the first as an example."""
        return [(number, example(list(texts))) for number, texts in enumerate(self._texts.values(), start=1)]


def example(texts: list[str]) -> str:
    """The one text, or the first of several."""
    return texts[0] if len(texts) == 1 else f"{EXAMPLE}{texts[0]}"
