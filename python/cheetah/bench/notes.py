"""Footnotes: sentences that many cells may refer to, each written once."""

_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


class Notes:
    """The footnotes of a table, in the order in which they are first referred to."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, sentence: str) -> int:
        """From 1; the same sentence has the same one."""
        return self._numbers.setdefault(sentence, len(self._numbers) + 1)

    def marks(self, sentences: tuple[str, ...]) -> str:
        """Raised numbers, to stand behind a figure."""
        return "˒".join(raised(self.number(sentence)) for sentence in sentences)

    def items(self) -> list[tuple[int, str]]:
        """All of them."""
        return [(number, sentence) for sentence, number in self._numbers.items()]


def raised(number: int) -> str:
    """A number in raised digits."""
    return str(number).translate(_RAISED)
