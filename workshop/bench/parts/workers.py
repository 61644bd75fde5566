"""Listing and hashing the files of a local image: `cheetah triage` with 1, 2, … workers beside The Sleuth Kit's tools
in sequence, and tsk_loaddb."""

from __future__ import annotations

import functools
import os
import time

from bench.harness.rounds import interleave
from bench.images import examined
from bench.images.examined import ExaminedImage
from bench.parts.findings import command, watch
from bench.scratch import Scratch, drop_caches
from bench.settings import Settings
from bench.tools import examiner
from bench.tools.limited import run_limited
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure

IN_SEQUENCE = "fls, then icat | md5sum"
LOADDB = "tsk_loaddb -h"
# The number of files hashed with one process per file, evenly spread; the time of the others is extrapolated.
SAMPLED_FILES = 2000
LIMIT_S = 1800.0
ROUNDS_MAX = 3

EXTRACTION = 'set -o pipefail; while read -r address; do icat "$1" "$address" | md5sum; done'


def ours(workers: int) -> str:
    """Returns our contender's name with that many workers."""
    return f"cheetah triage --workers {workers}"


def in_sequence(image: ExaminedImage) -> dict[str, float]:
    """Lists, then extracts regular files with content; returns the extrapolated time for all of them."""
    with Scratch() as turn:
        drop_caches()
        out = turn.path("bodyfile")
        listed = examiner.listing(image.path, LIMIT_S, out)
        with open(out, encoding="utf-8", errors="replace") as file:
            files = examiner.regular_files(file.read())
        sampled = files[:: max(1, len(files) // SAMPLED_FILES)]
        given = examiner.as_input(address for address, _ in sampled)
        hashed = run_limited(["bash", "-c", EXTRACTION, "extract", image.path], LIMIT_S, given)
        seconds = listed.seconds + hashed.seconds * len(files) / len(sampled)
        return _sample(image, seconds, listed.finished and hashed.finished, IN_SEQUENCE)


def loaddb(image: ExaminedImage) -> dict[str, float]:
    """Loads the image's metadata and the MD5 of every file into an SQLite database."""
    with Scratch() as turn:
        drop_caches()
        start = time.perf_counter()
        done = run_limited(["tsk_loaddb", "-h", "-d", os.path.join(turn.disk_dir, "tsk.db"), image.path], LIMIT_S)
        return _sample(image, time.perf_counter() - start, done.finished, LOADDB)


def triage(image: ExaminedImage, workers: int) -> dict[str, float]:
    """Runs all our stages, report included, with MD5 alone like the others."""
    with Scratch() as turn:
        drop_caches()
        out = os.path.join(turn.disk_dir, "out")
        times = watch(command(image.path, out, "--workers", str(workers), "--hash", "md5", "--no-unallocated"))
        assert times.done is not None
        return _sample(image, times.done, True, ours(workers))


def _sample(image: ExaminedImage, seconds: float, finished: bool, contender: str) -> dict[str, float]:
    if not finished:
        raise BenchError(f"{contender}: not done after {LIMIT_S:.0f} s")
    return {"rate": image.files / seconds, "seconds": seconds}


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures."""
    rounds = min(settings.rounds, ROUNDS_MAX)
    processors = os.cpu_count() or 1
    counts = sorted({1, 2, 4, processors})
    figures = []
    for fs in ("ntfs", "ext4"):
        image = examined.get(examined.kinds(fs, settings.quick)[1])
        print(f"workers: {fs}, {image.files} files, {image.lines} lines, {processors} processors", flush=True)
        turns = {ours(count): functools.partial(triage, image, count) for count in counts}
        turns |= {IN_SEQUENCE: functools.partial(in_sequence, image), LOADDB: functools.partial(loaddb, image)}
        results = interleave(fs, rounds, turns, ("rate", "seconds"))
        rates = {name: [sample["rate"] for sample in found] for name, found in results.items()}
        best = ours(processors)
        what = f"{fs}, {image.files} files listed and hashed (MD5)"
        note = (
            "Ours lists, types and scores every file too, and writes the tables and the report; all of that is in its "
            f"time. This machine has {processors} processors."
        )
        beside = {name: rates[name] for name in (best, IN_SEQUENCE, LOADDB)}
        figures.append(Figure(f"workers/{fs}/rate", what, "files/s", best, beside, "higher", None, note))
        for count in counts[1:]:
            pair = {name: rates[name] for name in (ours(count), ours(1))}
            figures.append(
                Figure(
                    f"workers/{fs}/scaling-{count}",
                    f"{what}: {count} workers beside one",
                    "files/s",
                    ours(count),
                    pair,
                    "higher",
                    None,
                    note,
                )
            )
    return figures
