"""A program that was run: its measurements, and why it was ended."""

import dataclasses

TERM_S = 3.0
"""From SIGTERM to SIGKILL."""
KILL_S = 10.0
"""After SIGKILL; a process that survives this waits for a device and cannot be ended."""
PRINTED_BYTES_MAX = 4 << 20
WORDS_CHARS_MAX = 400
WATCH_S = 0.1
"""How often a watch is asked whether a tool may continue."""
READ_BYTES = 1 << 16


@dataclasses.dataclass(frozen=True)
class ToolRun:
    """The measurements of a command. A value that the kernel does not report is None."""

    seconds: float
    """From its start to its end."""
    cpu_s: float
    memory_peak_bytes: int | None
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
