"""The figures in sentences: the fastest target for each step, and the uncertain ones."""

import collections
import dataclasses
from collections.abc import Sequence

from cheetah.bench.cells import Cell, Ratio, Storage, Table
from cheetah.bench.figure import CHANCE_MAX, Figure, chance, overlap
from cheetah.bench.report.number import Number, Sentence, SentencePart
from cheetah.page.units import clock
from cheetah.page.visible import plain

NAMED_MAX = 8
TIED_MAX = 3
NAME_CHARS_MAX = 60


@dataclasses.dataclass(frozen=True)
class Verdict:
    """`kind` is "whole", "gaps", "quick" or "stopped"."""

    kind: str
    headline: Sentence
    sentences: tuple[Sentence, ...] = ()


@dataclasses.dataclass(frozen=True)
class Winner:
    """The fastest target of a step, and those it cannot be distinguished from."""

    step: str
    first: Cell
    beside: tuple[Cell, ...]
    known: bool
    """Whether the spread of all is known."""

    @property
    def clear(self) -> bool:
        """Whether its slowest repetition was faster than all others."""
        return self.known and not self.beside


def of(storage: Storage) -> Verdict:
    """Returns the verdict on storage."""
    tables = storage.tables()
    missed = sum(not cell.values for cell in storage.cells())
    partly = sum(bool(cell.values and cell.notes) for cell in storage.cells())
    kind = "gaps" if missed or partly or storage.part.get("warnings") else "whole"
    kind = "quick" if storage.part.get("quick") else kind
    kind = "stopped" if storage.part.get("problem") or not storage.whole else kind
    said = [sentence for table in tables if (sentence := _of_table(storage, table))]
    said += [sentence for sentence in [_of_rates(storage)] if sentence]
    if missed:
        said.append((f"{_times(missed, 'cell has', 'cells have')} no figure; section 1 says why.",))
    return Verdict(kind, _headline(storage, tables), (*said, _bounds(storage)))


def of_figures(figures: Sequence[Figure]) -> Verdict:
    """Returns the verdict on parts with bars."""
    met = [figure.met() for figure in figures if figure.met() is not None]
    if not met:
        return Verdict("whole", (f"{_times(len(figures), 'figure', 'figures')}, without bars.",))
    return Verdict("whole" if all(met) else "gaps", (f"{sum(map(bool, met))} of {len(met)} bars met.",))


def step_winners(storage: Storage, steps: Sequence[str], state: str) -> list[Winner]:
    """Returns the winner of each of these steps in which at least two targets were measured."""
    made = []
    for step in steps:
        cells = [cell for target in storage.targets if (cell := storage.cell(step, state, target)).values]
        if len(cells) > 1:
            best = max if cells[0].is_rate else min
            first = best(cells, key=lambda cell: cell.median)
            beside = [cell for cell in cells if cell is not first and overlap(first.values, cell.values)]
            made.append(Winner(step, first, tuple(beside), all(len(cell.values) > 1 for cell in cells)))
    return made


def _headline(storage: Storage, tables: Sequence[Table]) -> Sentence:
    measured = {cell.target for cell in storage.cells() if cell.values}
    if not measured:
        return ("Nothing was measured.",)
    if len(measured) == 1:
        return (f"Only {_name(measured.pop())} was measured: there is nothing to compare it with.",)
    found = step_winners(storage, tables[0].steps, tables[0].state) if tables else []
    if not found:
        return ("No step was timed on two targets: see the tables of rates.",)
    once = all(len(one.first.values) < 2 for one in found)
    first: dict[str, int] = {}
    for one in found:
        if one.clear or once:
            first[one.first.target] = first.get(one.first.target, 0) + 1
    leader = max(first, key=lambda name: first[name], default=None)
    of_steps = _times(len(found), "step", "steps")
    if leader is None:
        return (f"No clear winner in any of {of_steps}.",)
    if once:
        return (
            f"{_name(leader)} came first in {first[leader]} of {of_steps}, each measured once: no spread is known.",
        )
    if first[leader] * 2 > len(found):
        return (f"{_name(leader)} was the fastest in {first[leader]} of {of_steps}, caches {tables[0].state}.",)
    return (f"No clear winner: {_name(leader)} was fastest in {first[leader]} of {of_steps}.",)


def _of_table(storage: Storage, table: Table) -> Sentence:
    """Returns a paragraph on one state of the caches."""
    winners: dict[str, list[Winner]] = {}
    found = step_winners(storage, table.steps, table.state)
    for one in found:
        if one.clear:
            winners.setdefault(one.first.target, []).append(one)
    said: list[SentencePart] = []
    others = sorted((name for name in winners if name != storage.baseline), key=lambda name: -len(winners[name]))
    if others:
        said.append(f"The fastest, and how many times as fast as {_name(storage.baseline)}: ")
        for number, target in enumerate(others[:NAMED_MAX]):
            steps = [_step(storage, one) for one in winners[target]]
            said += ["; " if number else "", f"{_name(target)} in ", *_listed(steps)]
        said.append(". ")
    if storage.baseline in winners:
        steps = [_step(storage, one) for one in winners[storage.baseline]]
        said += [f"{_name(storage.baseline)} itself was the fastest in ", *_listed(steps), ". "]
    said += _tied(storage, [one for one in found if one.beside])
    single = [(_title(storage, one.step),) for one in found if not one.known and not one.beside]
    if single and len(single) < len(found):
        said += ["Measured once on some targets, so that no spread is known: ", *_listed(single), ". "]
    slower = [(target, steps) for target in storage.targets if (steps := _slower(storage, table, target))]
    if slower:
        said.append(f"Slower than {_name(storage.baseline)} beyond the spread: ")
        for number, (target, steps) in enumerate(slower[:NAMED_MAX]):
            said += ["; " if number else "", f"{_name(target)} in ", *_listed(steps)]
        said.append(f"; and {len(slower) - NAMED_MAX} more targets. " if len(slower) > NAMED_MAX else ". ")
    said += _together(storage, table, winners)
    return (f"Caches {plain(table.state, NAME_CHARS_MAX)}: ", *said) if said else ()


def _step(storage: Storage, one: Winner) -> Sentence:
    ratio = storage.ratio(one.first)
    title = _title(storage, one.step)
    return (title,) if ratio is None else (f"{title} (", _ratio(one.first, ratio), ")")


def _tied(storage: Storage, tied: Sequence[Winner]) -> Sentence:
    """Returns where there is no clear winner, and among which targets."""
    if not tied:
        return ()
    begin = "No clear winner in "
    if len(tied) <= TIED_MAX:
        named = [(f"{_title(storage, one.step)} ({_names([one.first, *one.beside])})",) for one in tied]
        return (begin, *_listed(named), ". ")
    among = collections.Counter(cell.target for one in tied for cell in (one.first, *one.beside))
    counts = [(f"{_name(target)} is in {number}",) for target, number in among.most_common(TIED_MAX)]
    steps = [(_title(storage, one.step),) for one in tied]
    return (begin, f"{len(tied)} steps (", *_listed(steps), "); candidates: ", *_listed(counts), ". ")


def _of_rates(storage: Storage) -> Sentence:
    """Returns which target was the fastest in how many cells of the matrix."""
    found = [one for grid in storage.grids() for one in step_winners(storage, grid.steps(storage), grid.state)]
    if not found:
        return ()
    first = collections.Counter(one.first.target for one in found if one.clear)
    rest = len(found) - first.total()
    of_cells = _times(len(found), "cell", "cells")
    if not first:
        return (f"Rates, by fio: no clear winner in any of {of_cells}.",)
    counts = ", ".join(f"{_name(target)} in {number}" for target, number in first.most_common(TIED_MAX))
    undecided = f"; no clear winner in {rest}" if rest else ""
    return (f"Rates, by fio, of {of_cells}: the fastest was {counts}{undecided}.",)


def _slower(storage: Storage, table: Table, target: str) -> list[Sentence]:
    """Returns the steps in which a target is slower."""
    made: list[Sentence] = []
    for step in table.steps:
        cell = storage.cell(step, table.state, target)
        ratio = storage.ratio(cell)
        if ratio and not ratio.uncertain and not ratio.once and ratio.value < 1:
            made.append((f"{_title(storage, step)} (", _ratio(cell, ratio), ")"))
    return made


def _together(storage: Storage, table: Table, winners: dict[str, list[Winner]]) -> Sentence:
    """Returns the total of all steps, on the baseline and on the target that won most."""
    leader = max(winners, key=lambda name: len(winners[name]), default=storage.baseline)
    if leader == storage.baseline:
        return ()
    both = [[storage.cell(step, table.state, target) for step in table.steps] for target in (storage.baseline, leader)]
    shared = [pair for pair in zip(*both, strict=True) if all(cell.values for cell in pair)]
    if len(shared) < 2:
        return ()
    what = (
        f"The {len(shared)} steps" if len(shared) == len(table.steps) else f"The {len(shared)} steps measured on both"
    )
    figure, sums = (
        f"{storage.part['part']}/{table.state}",
        [sum(pair[side].median for pair in shared) for side in (0, 1)],
    )
    return (
        f"{what} together, by their medians: ", Number(figure, storage.baseline, "sum", sums[0], clock(sums[0])),
        f" on {_name(storage.baseline)}, ", Number(figure, leader, "sum", sums[1], clock(sums[1])), f" on {_name(leader)}.",
    )  # fmt: skip


def _bounds(storage: Storage) -> Sentence:
    if storage.part.get("quick"):
        return ("A quick run: it shows that everything works; do not quote it.",)
    rounds = storage.rounds
    if rounds < 2:
        return ("Each was measured once. No spread is known, so any of these differences may be chance.",)
    said = f"These are {rounds} repetitions on this machine with this image; other machines and images may differ."
    if chance(rounds, rounds) > CHANCE_MAX:
        said += (
            f" With so few, equal targets would differ beyond the spread in 1 of {1 / chance(rounds, rounds):.0f} cells by "
            "mere chance; use five."
        )
    return (said,)


def _ratio(cell: Cell, ratio: Ratio) -> Number:
    return Number(cell.figure, cell.target, "ratio", ratio.value, f"{ratio.value:.2f}")


def _listed(items: Sequence[Sentence]) -> list[SentencePart]:
    pieces: list[SentencePart] = []
    for number, item in enumerate(items[:NAMED_MAX]):
        last = number == len(items) - 1
        pieces += [("" if number == 0 else " and " if last else ", "), *item]
    if len(items) > NAMED_MAX:
        pieces.append(f" and {len(items) - NAMED_MAX} more")
    return pieces


def _names(cells: Sequence[Cell]) -> str:
    named = [_name(cell.target) for cell in cells[:TIED_MAX]]
    return ", ".join([*named, *([f"{len(cells) - TIED_MAX} more"] if len(cells) > TIED_MAX else [])])


def _name(target: str) -> str:
    shown = plain(target, NAME_CHARS_MAX)
    return f"“{shown}”" if " " in shown else shown


def _title(storage: Storage, step: str) -> str:
    return plain(storage.title(step), NAME_CHARS_MAX)


def _times(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
