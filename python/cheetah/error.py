"""The error that opening a source raises."""

import json
from collections.abc import Sequence
from typing import Any

KIND_OF = {1: "failed", 2: "misuse", 3: "evidence"}
"""The kind of an error of which no more is known than its exit code."""


class Error(OSError):
    """A source cannot be opened, shared or closed. Its text is one sentence: the failure, the place, and the next step.

    `exit_code` is that of the command line: 1 failed, 2 misused, 3 a problem with the evidence. `kind` says it in a word:
    `failed`, `misuse`, `evidence`, `device`, `unsupported`, or what is known of a node (`refused`, `unreachable`, `silent`, `restarted`,
    `lost`). `next` holds the next steps that the text ends with, as answers for programs have them, and `steps` their names, as in
    the table of the guide. Where the system refuses the source's path, `errno` and `filename` are set, and the error is also a
    FileNotFoundError, PermissionError, IsADirectoryError or NotADirectoryError.
    """

    def __new__(
        cls,
        sentence: str,
        exit_code: int = 1,
        errno: int | None = None,
        filename: str | None = None,
        kind: str | None = None,
        next: Sequence[str] = (),
    ) -> "Error":
        """Chooses the class by `errno`, as OSError does. Each of `next` is a next step as JSON."""
        refused = _KINDS.get(type(OSError(errno, ""))) if cls is Error else None
        words = (sentence,) if errno is None else (errno, sentence, filename)
        return super().__new__(refused or cls, *words)

    def __init__(
        self,
        sentence: str,
        exit_code: int = 1,
        errno: int | None = None,
        filename: str | None = None,
        kind: str | None = None,
        next: Sequence[str] = (),
    ):
        super().__init__()
        self.exit_code = exit_code
        self.kind = kind or KIND_OF[exit_code]
        self.next: tuple[dict[str, Any], ...] = tuple(map(json.loads, next))
        self.steps = tuple(step["step"] for step in self.next)
        self._given = sentence, exit_code, errno, filename, self.kind, tuple(next)

    def __str__(self) -> str:
        return self._given[0]

    def __reduce__(self) -> tuple[Any, ...]:
        return Error, self._given


class _NotFound(Error, FileNotFoundError):
    pass


class _NotPermitted(Error, PermissionError):
    pass


class _IsDirectory(Error, IsADirectoryError):
    pass


class _NotDirectory(Error, NotADirectoryError):
    pass


_KINDS: dict[type[OSError], type[Error]] = {
    FileNotFoundError: _NotFound,
    PermissionError: _NotPermitted,
    IsADirectoryError: _IsDirectory,
    NotADirectoryError: _NotDirectory,
}
for _kind in _KINDS.values():
    # Tracebacks name the public class.
    _kind.__name__ = _kind.__qualname__ = "Error"
