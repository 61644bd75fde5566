"""Child processes: started, watched, measured, and always ended by their own process id."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from cheetah.bench.failure import BenchError
from cheetah.bench.interrupts import uninterrupted

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 20


class Process:
    """A server under measurement. It dies with the harness, even if that is killed."""

    def __init__(self, name: str, argv: Sequence[str], log_path: str) -> None:
        self.name = name
        self.log_path = log_path
        argv = ["setpriv", "--pdeathsig", "TERM", *argv]
        with open(log_path, "wb") as log:
            self._child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    @property
    def pid(self) -> int:
        """Its process id; the wrappers that start it replace themselves with it."""
        return self._child.pid

    @property
    def has_ended(self) -> bool:
        """Whether it has ended, for any reason."""
        # Interrupted while it takes its lock, a Popen never releases it, and the process can never be waited for.
        with uninterrupted():
            return self._child.poll() is not None

    def wait_until(self, ready: Callable[[], object], what: str) -> None:
        """Waits until `ready()` is true. Raises BenchError if the child ends first or takes too long."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while not ready():
            if self.has_ended:
                raise BenchError(f"{self.name} ended before {what}: {self.last_words()}")
            if time.monotonic() > deadline:
                raise BenchError(f"{self.name}: no {what} after {START_TIMEOUT_S} s: {self.last_words()}")
            time.sleep(0.01)

    def stop(self) -> None:
        """Ends it with SIGTERM, or SIGKILL if it does not react."""
        if self.has_ended:
            return
        self._child.send_signal(signal.SIGTERM)
        try:
            self._child.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            print(f"    {self.name} did not end within {STOP_TIMEOUT_S} s of SIGTERM; killed", file=sys.stderr)
            self._child.kill()
            self._child.wait()

    def wait_end(self, timeout_s: float = 900) -> None:
        """Waits until it ends by itself. Raises BenchError if it fails."""
        try:
            status = self._child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise BenchError(f"{self.name}: not done after {timeout_s} s: {self.last_words()}") from None
        if status != 0:
            raise BenchError(f"{self.name}: exit status {status}: {self.last_words()}")

    def printed(self) -> str:
        """Returns its output so far."""
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def last_words(self) -> str:
        """Returns the end of its output."""
        return self.printed()[-800:].strip() or "it printed nothing"


def search_path() -> str:
    """Returns the search path for programs: PATH, and the directories of root's programs, which a `su` without `-`
    omits."""
    return os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"


def run(argv: Sequence[str], timeout_s: float = 900, check: bool = True) -> str:
    """Runs a command to its end and returns its output; a failure carries its error message."""
    with contextlib.ExitStack() as stack:
        # Interrupted before it is known, a command would go on, and mount what is being taken down.
        with uninterrupted():
            child = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *argv],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env={**os.environ, "PATH": search_path()},
            )
            stack.callback(_end, child)
        try:
            printed, complaint = child.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise BenchError(f"{' '.join(argv)}: not done after {timeout_s} s") from None
    if check and child.returncode != 0:
        complaint = (complaint.strip() or printed.strip())[-800:]
        raise BenchError(f"{' '.join(argv)}: exit status {child.returncode}: {complaint}")
    return printed


def _end(child: "subprocess.Popen[str]") -> None:
    """Ends a command that was interrupted, or has ended."""
    with uninterrupted(), child:
        child.kill()
