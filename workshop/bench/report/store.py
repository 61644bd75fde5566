"""Results on disk: one JSON file per part, `workshop/bench/out/PART.json`, or in the run's own directory."""

import datetime
import json
import os
from typing import Any

from bench.settings import Settings
from cheetah.bench.figure import Figure

# The parts with published figures; the directory also has other files kept between runs.
OUT_DIR = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "out")


class Folder:
    """The directory for this run's results."""

    path = OUT_DIR


def save(part: Any, settings: Settings, machine: dict[str, str], figures: list[Figure]) -> None:
    """Saves the figures of a part, replacing earlier ones."""
    os.makedirs(Folder.path, exist_ok=True)
    content = {
        "part": part,
        "quick": settings.quick,
        "rounds": settings.rounds,
        "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine,
        "figures": [figure.to_json() for figure in figures],
    }
    path = os.path.join(Folder.path, f"{part}.json")
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
