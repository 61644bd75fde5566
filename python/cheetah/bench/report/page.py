"""report.html: a self-contained page without network access; see `cheetah.page`."""

import itertools
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from cheetah.bench import results
from cheetah.bench.cells import Grid, Storage
from cheetah.bench.figure import Figure
from cheetah.bench.report import charts, number, verdict
from cheetah.bench.report.number import Number
from cheetah.bench.report.remarks import Remarks
from cheetah.bench.report.rows import StorageTables, TableCell
from cheetah.bench.results import Part, Results
from cheetah.bench.units import short
from cheetah.page import document, units

REPORT = "report.html"
ABOUT_MACHINE = ("processor", "memory", "kernel")
"""Shown in the head; the rest at the end."""

FEW_CELLS = 9
"""Up to this many cells of the matrix are shown like steps."""
Row = tuple[str, list[TableCell]]

Json = dict[str, Any]
_UNSAID: Json = {
    "title": "",
    "about": "",
    "problem": "",
    "finished": "",
    "quick": False,
    "rounds": None,
    "warnings": (),
}


def write(found: Results, out: Path) -> Path:
    """Writes report.html into the directory `out`; returns its path. Raises OSError if that fails."""
    target = out / REPORT
    document.write(target, render(found))
    return target


def render(found: Results) -> str:
    """Returns the page. The same results give the same text."""
    templates = document.environment("cheetah.bench.report")
    templates.filters.update(
        html=number.html,
        name=number.name,
        listed=number.listed,
        next=next,
        title_of=lambda step, storage: storage.title(step),
    )
    style = document.style(document.text(templates, "style.css"))
    stored = [_storage(_UNSAID | part) for part in found.parts if part.get("samples")]
    others = [_other(_UNSAID | part) for part in found.parts if not part.get("samples")]
    figures = [figure for part in found.parts if not part.get("samples") for figure in results.figures(part)]
    verdicts = [one["verdict"] for one in stored]
    return templates.get_template("report.html").render(
        policy=document.policy(style),
        style=Markup(style),
        r=found,
        head={name: found.machine[name] for name in ABOUT_MACHINE if name in found.machine},
        programs={name: text for name, text in found.machine.items() if name not in ABOUT_MACHINE},
        command=shlex.join(found.command),
        storages=stored,
        others=others,
        verdict=verdicts[0] if verdicts else verdict.of_figures(figures),
        counter=itertools.count(1),
    )


def _storage(part: Part) -> Json:
    """Returns the content of the storage section."""
    storage = Storage(part)
    remarks = Remarks(storage)
    rows = StorageTables(storage, remarks)
    tables, cells = storage.tables(), list(storage.cells())
    grids = storage.grids()
    few = sum(len(grid.steps(storage)) for grid in grids) <= FEW_CELLS
    warnings, uncertain = remarks.beside(part["warnings"])
    timed = list(dict.fromkeys(step for table in tables for step in table.steps))
    return {
        "part": part,
        "s": storage,
        "verdict": verdict.of(storage),
        "image": _image(storage),
        "missing": remarks.all(True),
        "odd": remarks.all(False),
        "warnings": warnings,
        "uncertain": uncertain,
        "measured": sum(bool(cell.values) for cell in cells),
        "asked": len(cells),
        "samples": sum(len(cell.samples) for cell in cells),
        "cost": _cost(storage),
        "tables": [(table, list(rows.seeds(table.steps, table.state))) for table in tables],
        "profiles": charts.speed_ups(storage, tables),
        "steps": [(storage.steps[step], list(rows.details(step, _states(storage, step)))) for step in timed],
        "few": _few(storage, rows, grids) if few else [],
        "grids": [] if few else [(grid, list(rows.matrix(grid))) for grid in grids],
    }


def _few(storage: Storage, rows: StorageTables, grids: Sequence[Grid]) -> list[tuple[str, list[str], list[Row]]]:
    """Returns a small matrix as a table for each state."""
    made = []
    for state in dict.fromkeys(grid.state for grid in grids):
        steps = [step for grid in grids if grid.state == state for step in grid.steps(storage)]
        made.append((state, steps, list(rows.seeds(steps, state))))
    return made


def _image(storage: Storage) -> str:
    """Returns the description of the image, if the results have one."""
    settings = storage.settings
    if "image" not in settings:
        return ""
    name = str(settings["image"]) if settings["image"] else "made for the run from this machine's programs"
    known = isinstance(settings.get("image_bytes"), int)
    return f"{name}, {units.size(settings['image_bytes'])}" if known else name


def _states(storage: Storage, step: str) -> list[str]:
    return [table.state for table in storage.tables() if step in table.steps]


def _cost(storage: Storage) -> dict[str, str] | None:
    """Returns the cost of measuring, relative to the tools."""
    done = [one for cell in storage.cells() for one in cell.done]
    seconds = sum(one.seconds or 0.0 for one in done)
    moved = sum((one.read_bytes or 0) + (one.written_bytes or 0) for one in done)
    if not seconds:
        return None
    cost = {"time": _percent(sum(one.harness_cpu_s for one in done) / seconds)}
    if moved:
        cost["bytes"] = _percent(sum(one.harness_bytes for one in done) / moved)
    return cost


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %" if share == 0 or share >= 0.0001 else "less than 0.01 %"


def _other(part: Part) -> Json:
    """Returns the content of a part that has only figures."""
    figures = results.figures(part)
    return {
        "part": part,
        "ours": [_ours(figure) for figure in figures if figure.ours is not None],
        "beside": [_beside(figure) for figure in figures if figure.ours is None],
        "notes": list(dict.fromkeys(figure.note for figure in figures if figure.note)),
        "met": sum(figure.met() is True for figure in figures),
        "barred": sum(figure.met() is not None for figure in figures),
    }


def _ours(figure: Figure) -> Json:
    ours, peer, ratio = str(figure.ours), figure.peer(), figure.ratio()
    low, high = figure.ratio_spread() if ratio is not None and all(_rounds(figure)) else (None, None)
    return {
        "figure": figure,
        "ours": _spread(figure, ours) if figure.samples.get(ours) else None,
        "peer": peer,
        "theirs": _spread(figure, peer) if peer else None,
        "ratio": None if ratio is None else Number(figure.id, ours, "ratio", ratio, f"{ratio:.2f}"),
        "low": None if low is None else f"{low:.2f}",
        "high": None if high is None else f"{high:.2f}",
        "sign": "≥" if figure.better == "higher" else "≤",
        "met": figure.met(),
    }


def _rounds(figure: Figure) -> list[bool]:
    """Returns for each round whether it has a ratio."""
    peer = figure.peer()
    return [bool(theirs) for theirs in figure.samples[peer]] if peer else [False]


def _beside(figure: Figure) -> Json:
    most = max(figure.median(name) for name in figure.samples)
    rows = []
    for name in figure.samples:
        times = figure.speed_up(name) if name != figure.baseline else None
        shown = None if times is None else Number(figure.id, name, "ratio", times, f"{times:.2f}")
        rows.append((name, _spread(figure, name), shown, figure.median(name) / most if most else 0.0))
    return {"figure": figure, "rows": rows}


def _spread(figure: Figure, name: str) -> tuple[Number, Number, Number]:
    values = figure.samples[name]
    stats = {"median": figure.median(name), "min": min(values), "max": max(values)}
    middle, low, high = (Number(figure.id, name, stat, value, short(value)) for stat, value in stats.items())
    return middle, low, high
