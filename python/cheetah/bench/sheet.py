"""Tables of results as text: the content of the cells. `table` draws them."""

import dataclasses
import statistics
from collections.abc import Iterable, Iterator, Sequence

from cheetah.bench import results
from cheetah.bench.cells import Cell, Grid, Ratio, Storage, size
from cheetah.bench.figure import CHANCE_MAX, Figure, chance
from cheetah.bench.notes import Notes
from cheetah.bench.results import Part
from cheetah.bench.units import MIB, short
from cheetah.page.units import clock
from cheetah.page.visible import plain

NAME_CHARS_MAX = 60
NOTE_CHARS_MAX = 400
RECORD_MAX_BYTES = MIB
"""In the matrix, a terminal shows the smallest records and the largest up to this size, on the largest file."""
UNCERTAIN = "≈"
LEGEND = {
    "uncertain": f"{UNCERTAIN} the difference may be chance: the repetitions overlap with those of the baseline",
    "once": "measured once: no spread is known, so a difference may be chance",
    "spread": "± half the range from the fastest to the slowest repetition, relative to the median",
}


@dataclasses.dataclass(frozen=True)
class Line:
    """A row. `kind` is "figures", "spread", "speed up" or "group", which has a label alone."""

    label: str
    cells: tuple[str, ...]
    kind: str = "figures"


@dataclasses.dataclass(frozen=True)
class Sheet:
    """A table. `notes` are sentences below it. All of it is safe to print."""

    title: str
    heads: tuple[str, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()
    left: frozenset[int] = frozenset()
    """Columns of text."""


def sheets(part: Part, spread_in_cells: bool = False) -> list[Sheet]:
    """Returns the tables of a part. `spread_in_cells`: lowest and highest beside each median, otherwise a line with
    the spread."""
    made: list[Sheet] = []
    if part.get("samples"):
        storage = Storage(part)
        made += [_timed(storage, table.state, table.steps, spread_in_cells) for table in storage.tables()]
        made += _matrix(storage, spread_in_cells)
    else:
        made += _figures(part)
    return made


def name(text: str) -> str:
    """Returns others' text, safe to print and limited in length."""
    return plain(text, NAME_CHARS_MAX)


def ratio_text(ratio: Ratio) -> str:
    """Returns 1.95, or ≈1.02 if the difference may be chance."""
    return f"{UNCERTAIN if ratio.uncertain and not ratio.once else ''}{ratio.value:.2f}"


def value_text(cell: Cell, value: float) -> str:
    """Returns a time, or a rate in MiB/s."""
    return short(value / MIB) if cell.is_rate else clock(value)


def spread_percent(cell: Cell) -> float:
    """Returns half the range, in percent of the median."""
    return 50 * (max(cell.values) - min(cell.values)) / cell.median if cell.median else 0.0


def _timed(storage: Storage, state: str, steps: Sequence[str], spread_in_cells: bool) -> Sheet:
    heads = [name(storage.title(step)) for step in steps]
    columns = [[storage.cell(step, state, target) for step in steps] for target in storage.targets]
    return _sheet(storage, f"Time (m:ss.cc), caches {name(state)}", heads, columns, spread_in_cells)


def _matrix(storage: Storage, spread_in_cells: bool) -> Iterator[Sheet]:
    """Yields a selection of the matrix: a table for each record size, a column for each operation."""
    grids = storage.grids()
    for state in dict.fromkeys(grid.state for grid in grids):
        of_state = [grid for grid in grids if grid.state == state]
        for record in _records(of_state):
            chosen = [(grid, file) for grid in of_state if (file := _largest(storage, grid, record))]
            files = {file for _, file in chosen}
            heads = [name(grid.title) + (f" ({file})" if len(files) > 1 else "") for grid, file in chosen]
            rows = [
                [storage.cell(grid.step(file, record), state, target) for grid, file in chosen]
                for target in storage.targets
            ]
            of_file = f", file of {name(next(iter(files)))}" if len(files) == 1 else ""
            yield _sheet(storage, f"fio, MiB/s, records of {name(record)}{of_file}", heads, rows, spread_in_cells)


def _records(grids: Sequence[Grid]) -> list[str]:
    from_small = sorted({record for grid in grids for record in grid.records}, key=size)
    fitting = [record for record in from_small if size(record) <= RECORD_MAX_BYTES] or from_small
    return list(dict.fromkeys([fitting[0], fitting[-1]])) if fitting else []


def _largest(storage: Storage, grid: Grid, record: str) -> str | None:
    return next((file for file in reversed(grid.files) if grid.step(file, record) in storage.steps), None)


def _sheet(
    storage: Storage, title: str, heads: Sequence[str], rows: Sequence[Sequence[Cell]], spread_in_cells: bool
) -> Sheet:
    notes, legend, lines = Notes(), dict[str, None](), list[Line]()
    for target, cells in zip(storage.targets, rows, strict=True):
        if not any(cell.samples for cell in cells):
            continue
        label = name(target) + (" (baseline)" if target == storage.baseline and len(storage.targets) > 1 else "")
        lines.append(Line(label, tuple(_cell(cell, notes, spread_in_cells) for cell in cells)))
        if not spread_in_cells and any(len(cell.values) > 1 for cell in cells):
            spreads = (f"± {spread_percent(cell):.1f} %" if len(cell.values) > 1 else "" for cell in cells)
            lines.append(Line("", tuple(spreads), "spread"))
            legend[LEGEND["spread"]] = None
        ratios = [storage.ratio(cell) for cell in cells]
        if any(ratios):
            lines.append(Line("Speed up", tuple(ratio_text(one) if one else "" for one in ratios), "speed up"))
        for one in ratios:
            if one and (one.once or one.uncertain):
                legend[LEGEND["once" if one.once else "uncertain"]] = None
        if any(one and not one.once and not one.uncertain for one in ratios):
            legend.update(dict.fromkeys(by_chance(_pairs(storage, cells))))
    numbered = [f"{number}  {plain(sentence, NOTE_CHARS_MAX)}" for number, sentence in notes.items()]
    return Sheet(title, tuple(heads), tuple(lines), (*legend, *numbered))


def by_chance(pairs: Iterable[tuple[int, int]]) -> Iterator[str]:
    """Yields warnings about differences beyond the spread with few rounds: `pairs` of the numbers of rounds."""
    rarest = max((chance(*pair) for pair in pairs), default=0.0)
    if rarest > CHANCE_MAX:
        yield f"with so few repetitions, 1 in {1 / rarest:.0f} figures would differ beyond the spread by mere chance; use five"


def _pairs(storage: Storage, cells: Sequence[Cell]) -> Iterator[tuple[int, int]]:
    """Yields how often a cell and the baseline's cell were measured, if a difference is reported."""
    for cell in cells:
        ratio = storage.ratio(cell)
        if ratio and not ratio.once and not ratio.uncertain:
            yield len(cell.values), len(storage.cell(cell.step, cell.state, storage.baseline).values)


def _cell(cell: Cell, notes: Notes, spread_in_cells: bool) -> str:
    text = cell.word or value_text(cell, cell.median)
    if spread_in_cells and len(cell.values) > 1:
        text += f" [{value_text(cell, min(cell.values))} – {value_text(cell, max(cell.values))}]"
    return text + notes.marks(cell.notes)


def _figures(part: Part) -> Iterator[Sheet]:
    """Yields two kinds of tables: ours beside the best of the others, and candidates beside a baseline."""
    found = results.figures(part)
    title = name(str(part.get("title") or part["part"]))
    ours = [figure for figure in found if figure.ours is not None]
    notes = tuple(dict.fromkeys(plain(figure.note, NOTE_CHARS_MAX) for figure in found if figure.note))
    if ours:
        heads = ("ours", "best of the others", "", "ratio", "bar", "met")
        yield Sheet(title, heads, tuple(map(_ours, ours)), notes, frozenset({2}))
    beside = [figure for figure in found if figure.ours is None]
    if beside:
        lines = [line for figure in beside for line in _beside(figure)]
        yield Sheet(title, ("median", "lowest", "highest", "times the baseline"), tuple(lines), () if ours else notes)


def _ours(figure: Figure) -> Line:
    label = f"{plain(figure.what, 120)} ({name(figure.unit)})"
    if not figure.samples.get(str(figure.ours)):
        return Line(label, ("not measured", "", "", "", "", ""))
    peer, ratio = figure.peer(), figure.ratio()
    sign = "≥" if figure.better == "higher" else "≤"
    return Line(
        label,
        (
            spread(figure.samples[str(figure.ours)]),
            spread(figure.samples[peer]) if peer else "",
            name(peer) if peer else "",
            "" if ratio is None else f"{ratio:.2f}",
            "" if figure.bar is None else f"{sign} {figure.bar:g}",
            {None: "", True: "yes", False: "no"}[figure.met()],
        ),
    )


def _beside(figure: Figure) -> Iterator[Line]:
    yield Line(f"{plain(figure.what, 120)} ({name(figure.unit)})", ("", "", "", ""), "group")
    for contender, values in figure.samples.items():
        times = figure.speed_up(contender)
        shown = "" if times is None or contender == figure.baseline else f"{times:.2f}"
        columns = (short(figure.median(contender)), short(min(values)), short(max(values)), shown)
        yield Line(f"  {name(contender)}{' (baseline)' if contender == figure.baseline else ''}", columns)


def spread(values: Sequence[float]) -> str:
    """Returns median [lowest – highest]."""
    return f"{short(statistics.median(values))} [{short(min(values))} – {short(max(values))}]"
