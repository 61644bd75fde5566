"""One command, run to its end or to its limit, and what that took."""

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
from collections.abc import Sequence
from pathlib import Path
from typing import IO

TERM_S = 3.0
"""From SIGTERM to SIGKILL."""
KILL_S = 10.0
"""After SIGKILL; what then is still there waits for a device, and nobody can end it."""
PRINTED_BYTES_MAX = 4 << 20
WORDS_CHARS_MAX = 400
_READ_BYTES = 1 << 16
_POLL_S_MAX = 3600.0
_LAUNCH = str(Path(__file__).with_name("launch.py"))


@dataclasses.dataclass(frozen=True)
class Ran:
    """What a command came to. What the kernel does not tell is None."""

    seconds: float
    """From its start to its end."""
    cpu_s: float
    memory_peak_bytes: int
    """Of the largest of its processes."""
    read_bytes: int | None
    written_bytes: int | None
    exit_code: int
    """Negative: the signal that ended it."""
    harness_cpu_s: float
    """What starting and awaiting it cost."""
    printed: str = ""
    """The end of its output, where that goes to no file."""
    complaint: str = ""
    """The end of what it said on stderr."""

    @property
    def last_words(self) -> str:
        """What it said last, in one line."""
        text = " ".join((self.complaint.strip() or self.printed.strip()).split())
        return text[-WORDS_CHARS_MAX:] or "it said nothing"


class Late(Exception):
    """It was not done at its limit."""

    def __init__(self, limit_s: float, abandoned: bool):
        super().__init__(f"not done after {limit_s:.3g} s")
        self.abandoned = abandoned
        """Whether it is still there, as it cannot be ended."""


def run(argv: Sequence[str], directory: Path, stdout: Path | None = None, limit_s: float = 3600.0) -> Ran:
    """Runs a program in `directory`, with nothing to read, in a process group of its own, which is ended with it, at
    the limit, and when this process ends. What it prints goes to the file `stdout`, or is told.

    OSError where it cannot be started, Late at the limit.
    """
    program = shutil.which(argv[0])
    if program is None:
        raise FileNotFoundError(errno.ENOENT, "there is no such program", argv[0])
    with contextlib.ExitStack() as stack:
        out: IO[bytes] | int = stack.enter_context(open(stdout, "wb")) if stdout else subprocess.PIPE
        running = _Running([program, *argv[1:]], directory, out)
        stack.callback(running.close)
        if not running.wait(limit_s):
            raise Late(limit_s, abandoned=not running.end())
        return running.result()


class _Running:
    """A tool at work, beside the small process that awaits it."""

    def __init__(self, words: Sequence[str], directory: Path, out: IO[bytes] | int):
        self._report, theirs = os.pipe()
        try:
            self._launcher = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", sys.executable, "-I", "-S", _LAUNCH, str(theirs), *words],
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.PIPE,
                pass_fds=[theirs],
                env={**os.environ, "LC_ALL": "C"},
                start_new_session=True,
            )
        except BaseException:
            os.close(self._report)
            raise
        finally:
            os.close(theirs)
        pipes = (self._launcher.stdout, self._launcher.stderr)
        self._kept = {self._report: bytearray()} | {pipe.fileno(): bytearray() for pipe in pipes if pipe}
        self._open = set(self._kept)
        self._poll = select.poll()
        for descriptor in self._open:
            os.set_blocking(descriptor, False)
            self._poll.register(descriptor, select.POLLIN)

    def wait(self, patience_s: float) -> bool:
        """Takes what it says, until it has ended; False if that takes longer."""
        until_s = time.monotonic() + patience_s
        while self._report in self._open:
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return False
            for descriptor, _ in self._poll.poll(min(left_s, _POLL_S_MAX) * 1000):
                self._take(descriptor)
        for descriptor in list(self._open):
            self._take(descriptor)
        self._launcher.wait()
        return True

    def _take(self, descriptor: int) -> None:
        kept = self._kept[descriptor]
        with contextlib.suppress(BlockingIOError):
            while more := os.read(descriptor, _READ_BYTES):
                kept += more
                if len(kept) > PRINTED_BYTES_MAX:
                    del kept[: -PRINTED_BYTES_MAX // 2]
            self._poll.unregister(descriptor)
            self._open.remove(descriptor)

    def end(self) -> bool:
        """Ends it and all of its group; False if it cannot be ended."""
        group, _, _ = bytes(self._kept[self._report]).partition(b"\n")
        for number, patience_s in ((signal.SIGTERM, TERM_S), (signal.SIGKILL, KILL_S)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(int(group) if group else self._launcher.pid, number)
            if self.wait(patience_s):
                return True
        return False

    def close(self) -> None:
        """Sees to it that nothing of it is left that can be ended."""
        if self._report in self._open:
            self.end()
        self._launcher.kill()
        self._launcher.wait()
        os.close(self._report)
        for pipe in (self._launcher.stdout, self._launcher.stderr):
            if pipe:
                pipe.close()

    def result(self) -> Ran:
        """What it came to. OSError if it was never started."""
        texts = [bytes(kept).decode(errors="replace") for kept in self._kept.values()]
        lines, printed, complaint = texts[0].splitlines(), "".join(texts[1:-1]), texts[-1]
        if len(lines) < 2:
            raise OSError(complaint.strip().rpartition("\n")[2] or "it could not be started")
        return Ran(**json.loads(lines[1]), printed=printed, complaint=complaint)
