"""Remarks on the figures: missing measurements and unusual circumstances; each sentence once, numbered."""

import dataclasses
from collections.abc import Iterable, Sequence

from cheetah.bench.cells import MATRIX, Cell, Note, Storage
from cheetah.bench.notes import example

TARGETS_MAX = 6
EXCEPT_FROM = 3
"""With at least this many targets, all but one are named by exception."""
CHANCE = ("may be chance", "the spread drowns the difference")
"""The text of warnings about small differences, now and in earlier versions."""


@dataclasses.dataclass
class Remark:
    """A sentence, and the cells it applies to."""

    number: int
    missing: bool
    """Whether there is no figure at all, or one to be read with care."""
    texts: dict[str, None] = dataclasses.field(default_factory=dict)
    places: dict[str, dict[str, dict[str, None]]] = dataclasses.field(default_factory=dict)
    """Targets, titles of steps, states."""

    @property
    def sentence(self) -> str:
        """Returns the sentence; an example if cells differ in its numbers."""
        return example(list(self.texts))

    def where(self, targets: Sequence[str]) -> list[tuple[list[str], str, str]]:
        """Returns where it applies: targets, how many more, and steps. Targets with the same steps are grouped; no
        names if it applies to all."""
        together: dict[str, list[str]] = {}
        for target in self.places:
            together.setdefault(self._steps(target), []).append(target)
        made: list[tuple[list[str], str, str]] = []
        for steps, named in together.items():
            left = [target for target in targets if target not in named]
            if not left and len(targets) > 1:
                made.append(([], "all targets", steps))
            elif len(left) == 1 and len(targets) > EXCEPT_FROM:
                made.append((left, "all but", steps))
            else:
                made.append(
                    (
                        named[:TARGETS_MAX],
                        f"and {len(named) - TARGETS_MAX} more" if len(named) > TARGETS_MAX else "",
                        steps,
                    )
                )
        return made

    def _steps(self, target: str) -> str:
        by_states: dict[str, list[str]] = {}
        for step, states in self.places[target].items():
            by_states.setdefault(" and ".join(states), []).append(step)
        return "; ".join(f"{', '.join(steps)} ({states})" for states, steps in by_states.items())


class Remarks:
    """The remarks on a part, those about missing figures first."""

    def __init__(self, storage: Storage) -> None:
        self._found: dict[str, Remark] = {}
        self._problem = storage.part.get("problem")
        cells = list(storage.cells())
        for cell in sorted(cells, key=lambda cell: bool(cell.values)):
            for note in cell.notes:
                self._note(storage, cell, note)

    def numbers(self, cell: Cell) -> list[int]:
        """Returns the numbers of the remarks on a cell."""
        return [self._found[note.kind].number for note in cell.notes]

    def all(self, missing: bool) -> list[Remark]:
        """Returns the remarks about missing figures, or the others."""
        return [remark for remark in self._found.values() if remark.missing == missing]

    def beside(self, warnings: Iterable[str]) -> tuple[list[str], list[str]]:
        """Returns the run's own warnings that say more than the remarks; and those about differences that may be chance,
        which are many, and which tables mark."""
        problem, known = self._problem, [text for remark in self._found.values() for text in remark.texts]
        rest = [
            said
            for said in dict.fromkeys(warnings)
            if said != problem and not any(said.endswith(sentence) for sentence in known)
        ]
        uncertain = [said for said in rest if any(words in said for words in CHANCE)]
        return [said for said in rest if said not in uncertain], uncertain

    def _note(self, storage: Storage, cell: Cell, note: Note) -> None:
        remark = self._found.setdefault(note.kind, Remark(len(self._found) + 1, not cell.values))
        remark.texts[note.text] = None
        step = f"fio {storage.operation(cell.step)}" if cell.step.startswith(MATRIX) else storage.title(cell.step)
        remark.places.setdefault(cell.target, {}).setdefault(step, {})[cell.state] = None
