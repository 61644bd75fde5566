"""Results on disk: one JSON file per part, `workshop/bench/out/PART.json`, or in the run's own directory."""

import datetime
import json
import os
from typing import Any

from bench.settings import Settings
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure

# The parts with published figures; the directory also has other files kept between runs.
OUT_DIR = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "out")


class Folder:
    """The directory for this run's results."""

    path = OUT_DIR


def kept(part: str, settings: Settings, machine: dict[str, str], program: str) -> Any:
    """Returns the saved results to which a measurement of some cases is added; None if it is one of all, or the first.
    Raises BenchError if they are of another program or machine."""
    if not settings.only:
        return None
    try:
        with open(_path(part), encoding="utf-8") as file:
            content = json.load(file)
    except FileNotFoundError:
        return None
    same = {"program": program, "quick": settings.quick, "machine": _without_tree(machine)}
    had = {**content, "machine": _without_tree(content["machine"])}
    if different := [key for key, value in same.items() if had.get(key) != value]:
        raise BenchError(
            f"{_path(part)} has figures of another {' and '.join(different)}, to which none can be added: omit --only to"
            " measure all cases, or name another folder with --out"
        )
    return content


def _without_tree(machine: dict[str, str]) -> dict[str, str]:
    """Returns a machine without the commit, which is another one after each commit of results."""
    return {name: text for name, text in machine.items() if name != "cheetah"}


def _path(part: str) -> str:
    return os.path.join(Folder.path, f"{part}.json")


def save(part: Any, settings: Settings, machine: dict[str, str], figures: list[Figure], program: str = "") -> None:
    """Saves the figures of a part, replacing earlier ones; those of other cases stay if only some were measured."""
    os.makedirs(Folder.path, exist_ok=True)
    rounds, earlier = settings.rounds, kept(part, settings, machine, program)
    if earlier:
        measured = {figure.id for figure in figures}
        figures = [one for one in map(Figure.from_json, earlier["figures"]) if one.id not in measured] + figures
        rounds = min(rounds, earlier["rounds"])
    content = {
        "part": part,
        "quick": settings.quick,
        "rounds": rounds,
        "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine,
        "program": program,
        "figures": [figure.to_json() for figure in figures],
    }
    path = _path(part)
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)
    os.replace(path + ".new", path)


def load(part: Any) -> Any:
    """Returns the saved results of a part with parsed figures, or None."""
    try:
        with open(os.path.join(OUT_DIR, f"{part}.json"), encoding="utf-8") as file:
            content = json.load(file)
    except FileNotFoundError:
        return None
    content["figures"] = [Figure.from_json(figure) for figure in content["figures"]]
    return content
