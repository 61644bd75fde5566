"""Compares the harness with manual measurement: the same command on the same file, alternating, timed by the shell's
`time` or by fio."""

import json
import subprocess
from pathlib import Path
from typing import Any

from bench.harness.rounds import interleave
from bench.scratch import Scratch, drop_caches, write_random
from bench.settings import Settings
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.process import run
from cheetah.bench.storage.options import syntax
from cheetah.bench.storage.run import turn
from cheetah.bench.storage.sample import COLD, WARM, Outcome, Sample
from cheetah.bench.storage.steps import Workplace
from cheetah.bench.storage.targets.directory import DirectoryTarget, SpaceReservations
from cheetah.bench.units import MIB

OURS, BY_HAND = "cheetah bench", "by hand"
LIMIT_S = 600
# The manual fio options of the measured access orders.
FIO = {
    "read": ["--rw=read"],
    "random-read": ["--rw=randread"],
    "write": ["--rw=write", "--end_fsync=1", "--fallocate=none"],
}
TIME = ["bash", "-c", 'TIMEFORMAT=%3R; time "$@"', "time"]


def sample_of(step: Any, ready: Any, place: Any, state: Any = COLD) -> Any:
    """Returns a sample of the step as the harness measures it."""
    sample = turn.take(Sample("disk", step.key, state, 1, Outcome.DONE), step, ready, place, LIMIT_S)
    if sample.outcome is not Outcome.DONE:
        raise BenchError(f"{step.key}: {sample.problem}")
    return sample


def timed_by_hand(argv: Any, out: str, cold: bool) -> Any:
    """Returns the seconds of a command by bash's `time`, with caches dropped or its file just read."""
    if cold:
        drop_caches()
    else:
        subprocess.run(["cat", argv[-1]], stdout=subprocess.DEVNULL, check=True)
    with open(out, "wb") as file:
        done = subprocess.run(
            [*TIME, *argv], stdout=file, stderr=subprocess.PIPE, text=True, check=True, timeout=LIMIT_S
        )
    return float(done.stderr.split()[-1])


def times(step: Any, ready: Any, place: Any, rounds: int, state: Any) -> Any:
    """Returns a tool's time, measured both ways."""
    [out] = step.outputs(place)
    argv = [step.key, *(["-a", "-t", "d"] if step.key == "strings" else []), str(place.image)]
    return interleave(
        f"{step.key}, {state}",
        rounds,
        {
            OURS: lambda: {"seconds": sample_of(step, ready, place, state).tool_s},
            BY_HAND: lambda: {"seconds": timed_by_hand(argv, out, state == COLD)},
        },
        "seconds",
    )


def rates(step: Any, ready: Any, place: Any, rounds: int) -> Any:
    """Returns fio's rate, measured both ways, each on its own file."""
    _, operation, *sizes = step.key.split("/")
    size_bytes, record_bytes = map(syntax.size, sizes)
    file = place.directory / "by-hand.dat"
    argv = [
        "fio",
        "--name=hand",
        f"--filename={file}",
        f"--size={size_bytes}",
        f"--bs={record_bytes}",
        *FIO[operation],
        "--ioengine=psync",
        "--thread",
        "--direct=1",
        "--output-format=json",
    ]
    side = "write" if operation == "write" else "read"

    def by_hand() -> dict[str, Any]:
        if side == "write":
            file.unlink(missing_ok=True)
        drop_caches()
        printed = run(argv)
        return {"rate": json.loads(printed[printed.index("{") :])["jobs"][0][side]["bw_bytes"] / MIB}

    if side == "read":
        write_random(file, size_bytes)
    found = interleave(
        step.key,
        rounds,
        {
            OURS: lambda: {"rate": sample_of(step, ready, place).bytes_per_s / MIB},
            BY_HAND: by_hand,
        },
    )
    file.unlink()
    return found


def agreement(key: str, what: str, unit: str, found: Any, metric: str, better: str) -> Any:
    """Returns two figures: both measurements, and the distance of their medians relative to their spreads."""
    samples = {name: [one[metric] for one in rounds] for name, rounds in found.items()}
    beside = Figure(f"storage/hand/{key}", what, unit, OURS, samples, better)
    apart = abs(beside.median(OURS) - beside.median(BY_HAND))
    spread = max(max(values) - min(values) for values in samples.values())
    within = {"distance of the medians": [apart], "the wider spread": [spread]}
    return [
        beside,
        Figure(
            f"storage/agree/{key}", f"{what}: within the spread", unit, "distance of the medians", within, "lower", 1.0
        ),
    ]


def checks(scratch: Scratch, settings: Settings, source: Path, steps: Any) -> list[Figure]:
    """Returns the figures on this machine's disk."""
    rounds = settings.rounds
    by_key = {step.key: step for step in steps}
    target = DirectoryTarget(
        "disk", Path(scratch.disk_dir), Path(scratch.dir), source.stat().st_size, SpaceReservations()
    )
    figures = []
    with target.enter(3 * source.stat().st_size) as ready:
        place = Workplace(ready.directory, source)
        sample_of(by_key["copy"], ready, place)
        for key, state in (("md5sum", WARM), ("md5sum", COLD), ("strings", COLD)):
            # Warm runs are disturbed least, so small differences show there, given enough rounds.
            found = times(by_key[key], ready, place, 3 * rounds if state == WARM else rounds, state)
            figures += agreement(f"{key}-{state}", f"{key}, {state}", "s", found, "seconds", "lower")
            if state == WARM:
                samples = {name: [one["seconds"] for one in measured] for name, measured in found.items()}
                what = "md5sum from memory, under the harness and without it"
                figures.append(Figure("storage/cost/time", what, "s", OURS, samples, "lower", 1.01))
        for step in steps:
            if step.key.startswith("fio/"):
                found = rates(step, ready, place, rounds)
                figures += agreement(step.key.replace("/", "-"), f"fio, {step.title}", "MiB/s", found, "rate", "higher")
    return figures
