"""plaso's log2timeline on a mounted drive, beside the same image as a file: the recipe of docs/guide/recipes/plaso.md, with its time."""

from __future__ import annotations

import functools
import os

from bench.harness.figures import Metric, from_rounds
from bench.harness.rounds import interleave
from bench.images import examined
from bench.scratch import Scratch, drop_caches
from bench.settings import Settings
from bench.tools import cheetah
from bench.tools.limited import run_limited
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.units import iec

OURS, LOCAL = "a drive, cheetah mount", "the image"
NODES = 3
LIMIT_S = 3600.0
ROUNDS_MAX = 3
OPTIONS = ("--unattended", "--status_view", "none", "--partitions", "all", "--volumes", "all")


def log2timeline() -> str:
    """Returns the program: in $CHEETAH_PLASO, or in the environment of the recipes' tests."""
    place = os.environ.get("CHEETAH_PLASO") or os.path.join(cheetah.ROOT, "target/plaso")
    program = os.path.join(place, "bin/log2timeline")
    if not os.access(program, os.X_OK):
        raise BenchError(f"needs {program}: run scripts/plaso-env, or name another environment with $CHEETAH_PLASO")
    return program


def timeline(program: str, source: str, turn: Scratch) -> dict[str, float]:
    """Makes a timeline of a source, from cold caches."""
    storage = os.path.join(turn.disk_dir, "case42.plaso")
    drop_caches()
    argv = [program, *OPTIONS, "--logfile", turn.path("log"), "--storage_file", storage, source]
    done = run_limited(argv, LIMIT_S)
    if not done.finished:
        raise BenchError(f"log2timeline {source} is not done after {LIMIT_S:.0f} s")
    return {"seconds": done.seconds, "stored_bytes": float(os.path.getsize(storage))}


def of_image(program: str, path: str) -> dict[str, float]:
    """The time on the image."""
    with Scratch() as turn:
        return timeline(program, path, turn)


def of_drive(program: str, drive: str) -> dict[str, float]:
    """The time on the drive, which is mounted anew."""
    with Scratch() as turn:
        return timeline(program, cheetah.mount(turn, drive)[1], turn)


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures."""
    program = log2timeline()
    image = examined.get(examined.kinds("ntfs", settings.quick)[0])
    what = f"log2timeline of an NTFS of {iec(image.size_bytes)} with {image.files} files"
    with Scratch() as scratch:
        nodes = [cheetah.node(scratch, image.size_bytes // NODES) for _ in range(NODES)]
        drive = cheetah.create(scratch, nodes, image=image.path)
        turns = {
            OURS: functools.partial(of_drive, program, drive),
            LOCAL: functools.partial(of_image, program, image.path),
        }
        results = interleave(what, min(settings.rounds, ROUNDS_MAX), turns, "seconds")
    note = (
        f"The drive lies in {NODES} nodes on this machine, the image on its disk; caches are cold. plaso parses with a process for each "
        "processor."
    )
    return from_rounds("plaso", what, OURS, (Metric("seconds", "", "s", "lower", None, note),), results)
