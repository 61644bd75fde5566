"""Runs of `cheetah bench storage`, whose results become figures of a part."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.documents import places
from bench.report import store
from bench.scratch import Scratch
from bench.settings import Settings
from cheetah.bench import results
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.storage.run import image
from cheetah.bench.storage.settings import Scope
from cheetah.bench.storage.settings import Settings as Chosen
from cheetah.bench.verbs import Enter

LIMIT_S = 24 * 3600


def kept(part: str, run: str) -> str:
    """Returns where all that a run measured is kept."""
    return os.path.join(store.Folder.path, part, f"{run}.json")


def image_of(scratch: Scratch, settings: Settings, size_bytes: int = 0) -> Path:
    """Makes an image of the harness's usual size in memory, so that reading it costs no target anything; or one of
    another size, on this machine's disk."""
    extent = Scope.QUICK if settings.quick else Scope.NORMAL
    chosen = Chosen((), "", Path(scratch.disk_dir if size_bytes else scratch.ram_dir), extent=extent)
    return image.get(chosen, lambda said: print(f"storage: {said}", flush=True), size_bytes)


def words(
    targets: Sequence[tuple[str, str]], steps: Sequence[str], out: str, settings: Settings, more: Sequence[str] = ()
) -> list[str]:
    """Returns the arguments of `cheetah bench storage` for a run."""
    argv = [f"{name}={target}" for name, target in targets]
    argv += ["--steps", ",".join(steps), "--out", out, "--repetitions", str(settings.rounds), *more]
    return argv + (["--quick"] if settings.quick else [])


def measured(
    scratch: Scratch,
    settings: Settings,
    part: str,
    run: str,
    targets: Sequence[tuple[str, str]],
    steps: Sequence[str],
    more: Sequence[str] = (),
    enter: Enter = list,
) -> dict[str, Any]:
    """Runs the harness on targets, which are (name, target), the first being the baseline; `enter` puts it on a machine
    of a lab. Returns the storage part of its results."""
    places.model_program()
    out = scratch.make_dir("out")
    argv = [sys.executable, "-m", "cheetah.bench", "storage", *words(targets, steps, out, settings, more)]
    print(f"{part}, {run}: {len(targets)} targets", flush=True)
    harness = scratch.start(f"cheetah bench storage, {run}", enter(argv))
    try:
        harness.wait_end(LIMIT_S)
    except BenchError as error:
        if not os.path.exists(os.path.join(out, results.JSON)):
            raise
        print(f"  {error}", flush=True)
    found = results.read(Path(out)).part("storage") or {}
    path = kept(part, run)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(found, file, indent=1)
    return dict(found)


def figures_of(found: dict[str, Any], part: str, run: str, title: str = "") -> Iterator[Figure]:
    """Yields the figures of a run: equal candidates beside a baseline."""
    for value in found["figures"]:
        figure = Figure.from_json(value)
        figure.id = figure.id.replace("storage/", f"{part}/{run}/", 1)
        figure.what = f"{title}: {figure.what}" if title else figure.what
        yield figure
