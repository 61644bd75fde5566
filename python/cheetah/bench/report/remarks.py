"""What a reader has to know before the figures: what is missing, and what is odd; each sentence once, numbered."""

import dataclasses

from cheetah.bench.cells import Cell, Storage

PLACES_MAX = 8


@dataclasses.dataclass
class Remark:
    """A sentence, and the cells it is about."""

    number: int
    sentence: str
    missing: bool
    """Whether there is no figure for it, or just one to be read with care."""
    places: list[tuple[str, str, str]] = dataclasses.field(default_factory=list)
    """Target, title of the step, state: some of them."""
    count: int = 0


class Remarks:
    """The remarks on a part, those about what is missing first."""

    def __init__(self, storage: Storage) -> None:
        self._found: dict[str, Remark] = {}
        cells = list(storage.cells())
        for cell in sorted(cells, key=lambda cell: bool(cell.values)):
            for sentence in cell.notes:
                self._note(storage, cell, sentence)

    def numbers(self, cell: Cell) -> list[int]:
        """Of the remarks on a cell."""
        return [self._found[sentence].number for sentence in cell.notes]

    def all(self, missing: bool) -> list[Remark]:
        """Those about what is missing, or the others."""
        return [remark for remark in self._found.values() if remark.missing == missing]

    def _note(self, storage: Storage, cell: Cell, sentence: str) -> None:
        remark = self._found.setdefault(sentence, Remark(len(self._found) + 1, sentence, not cell.values))
        remark.count += 1
        if len(remark.places) < PLACES_MAX:
            _, _, step_and_state = cell.figure.partition("/")
            step, _, state = step_and_state.rpartition("/")
            remark.places.append((cell.target, storage.title(step), state))
