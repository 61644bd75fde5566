"""Progress of a run: a progress bar on a terminal, plain lines in a pipe, JSON for programs.

It goes to stderr, and stdout holds the tables; with `--json` it goes to stdout, one object per line.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import TextIO

from cheetah import progress_output
from cheetah.page.visible import plain

LONG_S = 10.0
"""A measurement expected to take longer is announced when it begins."""


@dataclasses.dataclass(frozen=True)
class Event:
    """A progress event."""

    stage: str
    """ "entering", "measuring", "measured", "leaving", "note" or "done"."""
    done: int = 0
    total: int = 0
    """The number of measurements."""
    elapsed_s: float = 0.0
    left_s: float | None = None
    """The estimated time until all is measured; None while unknown."""
    target: str = ""
    step: str = ""
    state: str = ""
    repetition: int = 0
    expected_s: float | None = None
    """The expected duration of the current measurement."""
    seconds: float | None = None
    """The measured time."""
    said: str = ""
    """A problem, a warning, or a sentence for the user."""


Tell = Callable[[Event], None]


def shown(json_lines: bool = False) -> contextlib.AbstractContextManager[Tell]:
    """Shows events inside a `with` block."""
    return progress_output.shown(_bar, Plain, json_lines)


class Plain:
    """Prints lines for a log."""

    def __init__(self, out: TextIO):
        self._out = out

    def __call__(self, event: Event) -> None:
        """Prints an event."""
        if event.stage == "measuring" and event.expected_s is not None and event.expected_s < LONG_S:
            return
        self._out.write(f"{event.elapsed_s:7.1f} s  {words(event)}\n")
        self._out.flush()


def words(event: Event) -> str:
    """Returns an event as text that is safe to print: a tool's message may contain a name from the image."""
    return plain(_words(event))


def _words(event: Event) -> str:
    if event.stage == "entering":
        return f"making {event.target} ready"
    if event.stage == "leaving":
        return "removing the test's devices and files"
    if event.stage not in ("measuring", "measured"):
        return event.said or event.stage
    what = f"{event.step}, {event.state}, on {event.target}"
    if event.stage == "measuring":
        return f"{event.done + 1} of {event.total}: {what}{_left(event)}"
    text = f"{event.done} of {event.total}: {what}"
    if event.seconds is not None:
        text += f": {event.seconds:.2f} s"
    return text + (f": {event.said}" if event.said else "") + _left(event)


def _left(event: Event) -> str:
    return f" ({duration(event.left_s)} left)" if event.left_s is not None and event.done < event.total else ""


def duration(seconds: float) -> str:
    """Returns an approximate duration: 8 s, 12 min, 3 h 10 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


@contextlib.contextmanager
def _bar() -> Iterator[Tell]:
    """Shows a progress bar, and above it problems and warnings."""
    import rich.console
    import rich.markup
    import rich.progress

    console = rich.console.Console(stderr=True, highlight=False, emoji=False)
    columns = (
        rich.progress.TextColumn("{task.description}"),
        rich.progress.BarColumn(),
        rich.progress.MofNCompleteColumn(),
        rich.progress.TimeElapsedColumn(),
    )
    # Once a second: drawing takes processor time from the measurement.
    with rich.progress.Progress(*columns, console=console, transient=True, refresh_per_second=1) as progress:
        line = progress.add_task("", total=None)

        def tell(event: Event) -> None:
            if event.said:
                progress.console.print(rich.markup.escape(words(event)))
            if event.stage in ("note", "done"):
                return
            text = words(event).partition(": ")[2] if event.stage in ("measuring", "measured") else words(event)
            progress.update(line, description=rich.markup.escape(text), completed=event.done, total=event.total or None)

        yield tell
