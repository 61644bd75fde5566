"""Attacks by clocks: each command, and each server, has another time of day, from 1970 to far in the future."""

import subprocess
import sys
from pathlib import Path

from attack.stage import PATIENCE_S, ROOT, Broken, Skipped, Stage

WRONG_CLOCK = ROOT / "python" / "tests" / "wrong_clock.py"
CLOCKS_S = {"1970": 1, "2001": 1_000_000_000, "2038": 2_200_000_000, "2500": 16_725_225_600}
"""Seconds since 1970."""


def jumps(stage: Stage) -> None:
    """Acquires, verifies, loads and destroys; the clock jumps between any two commands, also backwards."""
    image = stage.path(".raw")
    image.write_bytes(stage.content[: 4 << 20])
    names = list(CLOCKS_S)
    with stage.node("file", "64MiB") as node:
        for index, clock in enumerate(names):
            others = names[index + 1 :] + names[:index]
            copy, drive = stage.path(".raw"), stage.path(".drive")
            steps = [
                ("acquire", image, copy, "--verify"),
                ("verify", copy),
                ("verify", copy, "--no-log"),
                ("create", drive, "--nodes", node.ready["nbd"], "--from", image),
                ("verify", drive),
                ("destroy", drive),
            ]
            for number, step in enumerate(steps):
                _run(stage, CLOCKS_S[clock if number == 0 else others[number % len(others)]], *step)
            if copy.read_bytes() != image.read_bytes():
                raise Broken(f"the copy that was made in {clock} differs")


def _run(stage: Stage, clock_s: int, *words: str | Path) -> None:
    """Runs a verb that must succeed at a time of day."""
    argv = [sys.executable, WRONG_CLOCK, str(clock_s), stage.binary, *words]
    ran = subprocess.run(argv, capture_output=True, text=True, env=stage.environment(), timeout=PATIENCE_S, check=False)
    said = ran.stderr.strip()
    if "Operation not permitted" in said and "cheetah" not in said:
        raise Skipped(f"this machine lets no process trace another: {said}")
    if ran.returncode != 0:
        raise Broken(f"cheetah {' '.join(map(str, words))} in another year ended with {ran.returncode}: {said}")
