"""Serves files that take the time of a hard disk (`workshop/lab/disk`), and checks them in real time.

In this folder, `python3 -m lab.disk check [MODEL …]` compares models behind a loop device with their data sheets, as `lab-disk check` does in
virtual time, and says what `zero` takes, the model without delays. It needs root, fio, and an idle machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence

from lab import crate
from lab.namespace import LabError

MODELS = ("ide", "desktop", "velociraptor")
ZERO = "zero"
NAME = "disk.raw"
SECONDS = 10
END_BYTES = 2 << 30
# As `lab-disk check` names them, with the options of fio; `{inner}` is where the last bytes begin.
JOBS = {
    "reads at the outer edge": ("--rw=read", "--bs=128k", "--iodepth=1", f"--size={END_BYTES}"),
    "reads at the inner edge": ("--rw=read", "--bs=128k", "--iodepth=1", "--offset={inner}", f"--size={END_BYTES}"),
    "random reads of 4 KiB": ("--rw=randread", "--bs=4k", "--iodepth=1"),
    "random reads of 4 KiB, depth 32": ("--rw=randread", "--bs=4k", "--iodepth=32"),
}
LINE = re.compile(r"\w+: (?P<what>.*?)\s+[\d.]+ (?P<unit>\S+)\s+allowed (?P<least>[\d.]+) to (?P<most>[\d.]+)")


@dataclasses.dataclass(frozen=True)
class Allowed:
    """What a data sheet allows of a quantity."""

    unit: str
    least: float
    most: float


def build() -> str:
    """Builds the program if it is missing or older than its source; returns its path."""
    return crate.build("lab-disk")


@contextlib.contextmanager
def served(model: str, size_bytes: int | None = None) -> Iterator[str]:
    """Serves a disk, or its first bytes, from memory; yields the path of its file."""
    with tempfile.TemporaryDirectory(prefix="lab-disk-") as directory:
        size = ["--size", str(size_bytes)] if size_bytes else []
        argv = ["setpriv", "--pdeathsig", "TERM", build(), model, directory, *size]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            if process.stdout.readline().strip() != "ready":
                raise LabError(f"the disk {model} did not start")
            yield os.path.join(directory, NAME)
        finally:
            # It unmounts the file.
            process.terminate()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


@contextlib.contextmanager
def as_device(file: str) -> Iterator[str]:
    """Attaches a loop device that caches nothing; yields its path."""
    device = _run(["losetup", "--find", "--show", "--direct-io=on", file]).strip()
    try:
        yield device
    finally:
        _run(["losetup", "--detach", device])


def allowed(model: str) -> dict[str, Allowed]:
    """Returns what is allowed of each quantity of a model."""
    done = subprocess.run([build(), "check", model], capture_output=True, text=True, check=False)
    found = filter(None, map(LINE.match, done.stdout.splitlines()))
    return {one["what"]: Allowed(one["unit"], float(one["least"]), float(one["most"])) for one in found}


def measured(device: str, options: Sequence[str]) -> tuple[float, float]:
    """Runs a job of fio on a device; returns MB/s and requests a second."""
    with open(device, "rb") as file:
        inner = file.seek(0, os.SEEK_END) - END_BYTES
    job = [option.format(inner=inner) for option in options]
    argv = ["fio", "--name=job", f"--filename={device}", "--direct=1", "--ioengine=libaio", "--norandommap"]
    argv += ["--output-format=json", f"--runtime={SECONDS}", "--time_based", "--randrepeat=0", *job]
    read = json.loads(_run(argv))["jobs"][0]["read"]
    return read["bw_bytes"] / 1e6, read["iops"]


def check(models: Sequence[str]) -> bool:
    """Measures models and prints a line for each quantity; returns whether all are within what is allowed."""
    is_met = True
    for model in models:
        stated = allowed(model) if model != ZERO else {}
        with served(model) as file, as_device(file) as device:
            for what, options in JOBS.items():
                mb_per_s, per_s = measured(device, options)
                value, unit = (per_s, "/s") if "random" in what else (mb_per_s, "MB/s")
                limit = stated.get(what)
                within = limit is None or limit.least <= value <= limit.most
                said = f"allowed {limit.least:g} to {limit.most:g}" if limit else "no delays"
                print(f"{model}: {what:<34} {value:>10.1f} {unit:<5} {said}{'' if within else '  DIFFERS'}", flush=True)
                is_met &= within
    return is_met


def _run(argv: Sequence[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout


def main() -> int:
    """Entry point."""
    if sys.argv[1:2] != ["check"]:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        return 0 if check(sys.argv[2:] or [*MODELS, ZERO]) else 1
    except LabError as error:
        print(f"lab.disk: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
