"""Runs one command to its end or its limit, and measures it."""

import contextlib
import dataclasses
import errno
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Self

TERM_S = 3.0
"""From SIGTERM to SIGKILL."""
KILL_S = 10.0
"""After SIGKILL; a process that survives this waits for a device and cannot be ended."""
PRINTED_BYTES_MAX = 4 << 20
WORDS_CHARS_MAX = 400
WATCH_S = 0.1
"""How often a watch is asked whether a tool may continue."""
_READ_BYTES = 1 << 16
_POLL_S_MAX = 3600.0
_LAUNCH = str(Path(__file__).with_name("launch.py"))


@dataclasses.dataclass(frozen=True)
class ToolRun:
    """The measurements of a command. A value that the kernel does not report is None."""

    seconds: float
    """From its start to its end."""
    cpu_s: float
    memory_peak_bytes: int
    """Of its largest process."""
    read_bytes: int | None
    written_bytes: int | None
    exit_code: int
    """Negative: the signal that ended it."""
    harness_cpu_s: float
    """The cost of starting it and waiting for it."""
    printed: str = ""
    """The end of its output, unless that goes to a file."""
    complaint: str = ""
    """The end of its stderr."""

    @property
    def last_words(self) -> str:
        """Returns its last output in one line."""
        text = " ".join((self.complaint.strip() or self.printed.strip()).split())
        return text[-WORDS_CHARS_MAX:] or "it printed nothing"


class TimedOut(Exception):
    """It reached its time limit."""

    def __init__(self, limit_s: float, abandoned: bool):
        super().__init__(f"not done after {limit_s:.3g} s")
        self.abandoned = abandoned
        """Whether it is still running, since it cannot be ended."""


class StoppedByWatch(Exception):
    """The watch ended it: the reason, as a sentence."""

    def __init__(self, why: str, abandoned: bool):
        super().__init__(why)
        self.abandoned = abandoned
        """As in TimedOut."""


def run(argv: Sequence[str], directory: Path, stdout: Path | None = None, limit_s: float = 3600.0) -> ToolRun:
    """Runs a program as `Tool` does. Raises OSError if it cannot be started, TimedOut at the limit."""
    with Tool(argv, directory, stdout) as tool:
        return tool.run(limit_s)


class Tool:
    """A program to be run once in `directory`, with empty input, and output to the file `stdout` or returned. A small
    launcher process is started ahead, so that it costs nothing when the tool starts.

    The tool has its own process group, which is ended with it: at its limit, when this is left, and when this process
    ends. Raises OSError if there is no such program.
    """

    def __init__(self, argv: Sequence[str], directory: Path, stdout: Path | None = None):
        program = shutil.which(argv[0])
        if program is None:
            raise FileNotFoundError(errno.ENOENT, "there is no such program", argv[0])
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            out: IO[bytes] | int = theirs.enter_context(open(stdout, "wb")) if stdout else subprocess.PIPE
            their_go, self._go = _pipe(theirs, ours)
            self._report, their_report = _pipe(ours, theirs)
            words = [str(their_go), str(their_report), program, *argv[1:]]
            self._launcher = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", sys.executable, "-I", "-S", _LAUNCH, *words],
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.PIPE,
                pass_fds=[their_go, their_report],
                env={**os.environ, "LC_ALL": "C"},
                start_new_session=True,
            )
            ours.callback(self._end_launcher)
            self._exits = ours.pop_all()
        pipes = (self._launcher.stdout, self._launcher.stderr)
        self._kept = {self._report: bytearray()} | {pipe.fileno(): bytearray() for pipe in pipes if pipe}
        self._open = set(self._kept)
        self._started = self._left_behind = False
        self._poll = select.poll()
        for descriptor in self._open:
            os.set_blocking(descriptor, False)
            self._poll.register(descriptor, select.POLLIN)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._started and not self._left_behind and self._report in self._open:
            self._end()
        self._exits.close()

    def await_ready(self) -> None:
        """Waits until the launcher is ready. Raises OSError if it fails."""
        while b"\n" not in self._kept[self._report]:
            if self._report not in self._open:
                self._result()
            self._poll_once(_POLL_S_MAX)

    def run(self, limit_s: float, watch: Callable[[], str] | None = None) -> ToolRun:
        """Runs it to its end. `watch` returns now and then why it must not continue, or "". Raises OSError if it
        cannot be started, TimedOut at the limit, StoppedByWatch if the watch ended it."""
        self.await_ready()
        self._started = True
        os.write(self._go, b"1")
        if not self._wait(limit_s, watch):
            raise TimedOut(limit_s, abandoned=not self._end())
        return self._result()

    def _wait(self, patience_s: float, watch: Callable[[], str] | None = None) -> bool:
        """Collects its output until it has ended; returns False if that takes longer."""
        until_s = time.monotonic() + patience_s
        while self._report in self._open:
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return False
            if watch and (why := watch()):
                raise StoppedByWatch(why, abandoned=not self._end(((signal.SIGKILL, KILL_S),)))
            self._poll_once(min(left_s, WATCH_S) if watch else left_s)
        for descriptor in list(self._open):
            self._take(descriptor)
        self._launcher.wait()
        return True

    def _poll_once(self, patience_s: float) -> None:
        for descriptor, _ in self._poll.poll(min(patience_s, _POLL_S_MAX) * 1000):
            self._take(descriptor)

    def _take(self, descriptor: int) -> None:
        kept = self._kept[descriptor]
        with contextlib.suppress(BlockingIOError):
            while more := os.read(descriptor, _READ_BYTES):
                kept += more
                if len(kept) > PRINTED_BYTES_MAX:
                    del kept[: -PRINTED_BYTES_MAX // 2]
            self._poll.unregister(descriptor)
            self._open.remove(descriptor)

    def _end(self, ways: Sequence[tuple[int, float]] = ()) -> bool:
        """Ends it and its group; returns False if it cannot be ended."""
        group = b"".join(bytes(self._kept[self._report]).splitlines()[1:2])
        for number, patience_s in ways or ((signal.SIGTERM, TERM_S), (signal.SIGKILL, KILL_S)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(int(group) if group else self._launcher.pid, number)
            if self._wait(patience_s):
                return True
        self._left_behind = True
        return False

    def _end_launcher(self) -> None:
        self._launcher.kill()
        self._launcher.wait()
        for pipe in (self._launcher.stdout, self._launcher.stderr):
            if pipe:
                pipe.close()

    def _result(self) -> ToolRun:
        """Returns its measurements. Raises OSError if it was never started."""
        texts = [bytes(kept).decode(errors="replace") for kept in self._kept.values()]
        lines, printed, complaint = texts[0].splitlines(), "".join(texts[1:-1]), texts[-1]
        if len(lines) < 3:
            raise OSError(complaint.strip().rpartition("\n")[2] or "it could not be started")
        return ToolRun(**json.loads(lines[2]), printed=printed, complaint=complaint)


def _pipe(reader: contextlib.ExitStack, writer: contextlib.ExitStack) -> tuple[int, int]:
    """Returns the two ends of a pipe, each closed with its owner."""
    out, into = os.pipe()
    reader.callback(os.close, out)
    writer.callback(os.close, into)
    return out, into
