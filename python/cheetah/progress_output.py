"""Progress output: a progress bar on a terminal, plain lines in a log, JSON objects for programs."""

import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TextIO, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

E = TypeVar("E", bound="DataclassInstance")


@contextlib.contextmanager
def shown(
    bar: Callable[[], AbstractContextManager[Callable[[E], None]]],
    plain: Callable[[TextIO], Callable[[E], None]],
    json_lines: bool,
) -> Iterator[Callable[[E], None]]:
    """Shows events inside a `with` block: by `bar` on a terminal, by `plain` elsewhere, and on a terminal that cannot move
    its cursor."""
    if json_lines:
        yield Json(sys.stdout)
    elif sys.stderr.isatty() and os.environ.get("TERM", "") not in ("", "dumb"):
        with bar() as tell:
            yield tell
    else:
        yield plain(sys.stderr)


class Json:
    """Prints one JSON object per line."""

    def __init__(self, out: TextIO):
        self._out = out

    def __call__(self, event: "DataclassInstance") -> None:
        """Prints an event."""
        self._out.write(json.dumps({"progress": dataclasses.asdict(event)}) + "\n")
        self._out.flush()
