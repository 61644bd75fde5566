"""Progress of a triage: a progress bar on a terminal, plain lines in a pipe, JSON for programs.

Progress goes to stderr, and stdout holds the result; with `--json` it goes to stdout, one object per line. Paths and
words from the evidence are made safe to print first.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TextIO

from cheetah import progress_output
from cheetah.page.visible import plain
from cheetah.triage.task import Event, Finding

TELL_S = 0.2
"""Seconds between two events of one stage."""
PLAIN_S = 5.0
"""Seconds between plain lines of one stage."""
SHOWN_MAX = 3
"""The number of findings shown as they appear, each once."""
_STAGES = {
    "lists": "preparing hash lists",
    "volumes": "looking for file systems",
    "listing": "listing",
    "ranking": "ranking",
    "atoms": "searching for what the rules need",
    "content": "reading files",
    "unallocated": "searching unallocated space",
    "merging": "writing tables",
    "report": "writing the report",
    "done": "done",
}
_PATH_CHARS_MAX = 100
_DOUBT_CHARS_MAX = 1000

Tell = Callable[[Event], None]


def of_lists(tell: Tell) -> Callable[[int, int], None]:
    """Returns a callback for the progress of hash lists: bytes done and total bytes."""
    began_s = told_s = time.monotonic()

    def progress(done: int, total: int) -> None:
        nonlocal told_s
        now_s = time.monotonic()
        if now_s - told_s >= TELL_S:
            told_s = now_s
            tell(Event("lists", done, total, unit="bytes", elapsed_s=now_s - began_s))

    return progress


def shown(json_lines: bool = False) -> contextlib.AbstractContextManager[Tell]:
    """Shows events inside a `with` block."""
    return progress_output.shown(_bar, Plain, json_lines)


class Plain:
    """Prints lines for a log: at each new stage, every few seconds, for new top findings and for doubts."""

    def __init__(self, out: TextIO):
        self._out = out
        self._stage = ""
        self._said_s = 0.0
        self._seen: set[Finding | str] = set()

    def __call__(self, event: Event) -> None:
        """Prints an event."""
        for doubt in event.doubts:
            if doubt not in self._seen:
                self._seen.add(doubt)
                self._say(event, of_doubt(doubt))
        for finding in event.latest[:SHOWN_MAX]:
            if finding not in self._seen and event.stage not in ("merging", "report", "done"):
                self._seen.add(finding)
                self._say(event, f"found: {of_finding(finding)}")
        if event.stage != self._stage or event.elapsed_s - self._said_s >= PLAIN_S:
            self._stage, self._said_s = event.stage, event.elapsed_s
            self._say(event, words(event))

    def _say(self, event: Event, text: str) -> None:
        self._out.write(f"{event.elapsed_s:7.1f} s  {text}\n")
        self._out.flush()


def words(event: Event) -> str:
    """Returns an event as text."""
    text = _STAGES.get(event.stage, event.stage)
    if event.done and event.unit == "bytes":
        text += f": {event.done >> 20} of {event.total >> 20} MiB"
    elif event.total > event.done:
        text += f": {event.done:,} of {event.total:,} {event.unit}"
    elif event.done:
        text += f": {event.done:,} {event.unit}"
    if event.findings:
        text += f", {event.findings:,} finding{'s' if event.findings > 1 else ''}"
    return text


def of_finding(finding: Finding) -> str:
    """Returns a finding as one line."""
    where = finding.path if finding.path is not None else f"byte {finding.offset}"
    return f"{finding.kind} ({plain(finding.rule, 40)}) in {plain(where, _PATH_CHARS_MAX)}"


def of_doubt(doubt: str) -> str:
    """Returns a doubt about the source as one line."""
    return f"IN DOUBT: {plain(doubt, _DOUBT_CHARS_MAX)}"


@contextlib.contextmanager
def _bar() -> Iterator[Tell]:
    """Shows a progress bar, and above it doubts and findings as they appear."""
    import rich.console
    import rich.markup
    import rich.progress

    console = rich.console.Console(stderr=True, highlight=False)
    columns = (
        rich.progress.SpinnerColumn(),
        rich.progress.TextColumn("{task.description}"),
        rich.progress.BarColumn(),
        rich.progress.TimeElapsedColumn(),
    )
    seen: set[Finding | str] = set()
    with rich.progress.Progress(*columns, console=console, transient=True) as progress:
        line = progress.add_task("", total=None)

        def tell(event: Event) -> None:
            total = (
                event.total
                if event.total > event.done or event.stage in ("lists", "atoms", "content", "unallocated")
                else None
            )
            progress.update(line, description=rich.markup.escape(words(event)), completed=event.done, total=total)
            for doubt in event.doubts:
                if doubt not in seen:
                    seen.add(doubt)
                    progress.console.print(rich.markup.escape(of_doubt(doubt)))
            for finding in event.latest[:SHOWN_MAX]:
                if finding not in seen:
                    seen.add(finding)
                    progress.console.print(rich.markup.escape(of_finding(finding)))

        yield tell
