"""Results on disk: one JSON file for each part, `bench/out/PART.json`."""

import datetime
import json
import os

from cheetah.bench.figure import Figure

OUT_DIR = os.path.join(os.path.dirname(os.path.abspath(__file__)), "out")


def save(part, settings, machine, figures):
    """Keeps the figures of a part; an earlier run's are replaced."""
    os.makedirs(OUT_DIR, exist_ok=True)
    content = {
        "part": part,
        "quick": settings.quick,
        "rounds": settings.rounds,
        "finished": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": machine,
        "figures": [figure.to_json() for figure in figures],
    }
    path = os.path.join(OUT_DIR, f"{part}.json")
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)
    os.replace(path + ".new", path)


def load(part):
    """The kept results of a part with its figures as such; None where it has not been run."""
    try:
        with open(os.path.join(OUT_DIR, f"{part}.json"), encoding="utf-8") as file:
            content = json.load(file)
    except FileNotFoundError:
        return None
    content["figures"] = [Figure.from_json(figure) for figure in content["figures"]]
    return content
