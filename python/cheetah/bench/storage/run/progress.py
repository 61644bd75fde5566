"""How a run shows that it gets on: a line that moves on a terminal, plain lines in a pipe, JSON for programs.

It goes to stderr, so that stdout is left to the tables; with `--json` to stdout, an object a line.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import TextIO

from cheetah import telling
from cheetah.page.visible import plain

LONG_S = 10.0
"""A measurement that is expected to take longer is said when it begins, not only when it is over."""


@dataclasses.dataclass(frozen=True)
class Event:
    """How a run gets on."""

    stage: str
    """ "entering", "measuring", "measured", "leaving", "note" or "done"."""
    done: int = 0
    total: int = 0
    """Measurements."""
    elapsed_s: float = 0.0
    left_s: float | None = None
    """Until all is measured, about; None while nobody knows."""
    target: str = ""
    step: str = ""
    state: str = ""
    repetition: int = 0
    expected_s: float | None = None
    """For what is being measured."""
    seconds: float | None = None
    """What was measured."""
    said: str = ""
    """A problem, a warning, or a sentence for the user."""


Tell = Callable[[Event], None]


def shown(json_lines: bool = False) -> contextlib.AbstractContextManager[Tell]:
    """Shows events for as long as it lasts."""
    return telling.shown(_bar, Plain, json_lines)


class Plain:
    """Lines for a log."""

    def __init__(self, out: TextIO):
        self._out = out

    def __call__(self, event: Event) -> None:
        """Tells of an event."""
        if event.stage == "measuring" and event.expected_s is not None and event.expected_s < LONG_S:
            return
        self._out.write(f"{event.elapsed_s:7.1f} s  {words(event)}\n")
        self._out.flush()


def words(event: Event) -> str:
    """An event in words, safe to print: what a tool said last may be a name out of the image."""
    return plain(_words(event))


def _words(event: Event) -> str:
    if event.stage == "entering":
        return f"making {event.target} ready"
    if event.stage == "leaving":
        return "taking down what was made"
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
    """About how long: 8 s, 12 min, 3 h 10 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


@contextlib.contextmanager
def _bar() -> Iterator[Tell]:
    """A line that moves, and above it what did not go as it should."""
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
    # Once a second: what draws it takes processor time from what is measured.
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
