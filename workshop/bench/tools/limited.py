"""Commands with a time limit, run with all their children."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import time
from collections.abc import Sequence

from cheetah.bench.failure import BenchError


@dataclasses.dataclass(frozen=True)
class LimitedRun:
    """The duration of a command; the limit if it was cut off."""

    seconds: float
    finished: bool
    printed: bytes


def run_limited(argv: Sequence[str], limit_s: float, given: bytes = b"", out: str | None = None) -> LimitedRun:
    """Runs a command with `given` on stdin; failing is an error, taking too long is not. Its output is returned, or
    written to the file `out`."""
    start = time.perf_counter()
    sink = open(out, "wb") if out else subprocess.PIPE
    try:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *argv],
            stdin=subprocess.PIPE,
            stdout=sink,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    finally:
        if not isinstance(sink, int):
            sink.close()
    try:
        printed, complaint = process.communicate(given, timeout=limit_s)
    except subprocess.TimeoutExpired:
        _kill_session(process)
        return LimitedRun(limit_s, False, b"")
    except BaseException:
        _kill_session(process)
        raise
    seconds = time.perf_counter() - start
    if process.returncode != 0:
        said = complaint.decode(errors="replace").strip()[-400:]
        raise BenchError(f"{' '.join(argv)}: exit status {process.returncode}: {said}")
    return LimitedRun(seconds, True, printed or b"")


def _kill_session(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
