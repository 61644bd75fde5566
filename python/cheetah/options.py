"""Command-line parsing with the errors of Cheetah's other verbs: one sentence, a suggestion, the usage."""

import argparse
import difflib
import errno
import importlib.resources
import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from cheetah.error import KIND_OF, Error
from cheetah.page.visible import plain
from cheetah.path_text import printable

MISUSED = 2
LINE_CHARS_MAX = 4000
_NEXT_STEPS = {
    errno.ENOENT: "check the path",
    errno.EACCES: "check its owner and mode, or run as root",
    errno.ENOTDIR: "name a folder",
    errno.EROFS: "choose another place",
    errno.ENOSPC: "free some space, or choose another place",
}
_SIMILAR = 0.75
"""From 0 to 1: below, a suggestion is more often wrong than right."""


class Parser(argparse.ArgumentParser):
    """A parser whose help is the page `help.txt` of a package, which the Rust command line prints as well.

    An unknown option is refused with the most similar known one. Options cannot be abbreviated: a script must not
    change its meaning when an option is added.
    """

    def __init__(self, package: str, prog: str):
        super().__init__(prog=prog, allow_abbrev=False)
        self._package = package
        self._as_json = False
        self._words: Sequence[str] = ()

    def format_help(self) -> str:
        """Returns the help page."""
        return page(self._package)

    def format_usage(self) -> str:
        """Returns the page's first paragraph."""
        return usage(self._package)

    def parse(self, words: Sequence[str], intermixed: bool = False) -> argparse.Namespace:
        """Parses a command line; ends the process with exit code 2 where it makes no sense. `intermixed`: positional
        arguments may stand between options."""
        given, unknown = self.parse_known(words, intermixed)
        if unknown:
            self.unexpected(unknown[0])
        return given

    def parse_known(self, words: Sequence[str], intermixed: bool = False) -> tuple[argparse.Namespace, list[str]]:
        """Does the same, and returns the arguments that are not this parser's."""
        self._as_json = "--json" in words
        self._words = words
        return self.parse_known_intermixed_args(words) if intermixed else self.parse_known_args(words)

    def unexpected(self, argument: str) -> NoReturn:
        """Refuses an argument, and suggests a known option that is similar."""
        name = argument.partition("=")[0]
        known = [option for action in self._actions for option in action.option_strings]
        tip = similar("argument", name, known) if name.startswith("-") else ""
        self._refuse(f"unexpected argument '{argument}' found", tip)

    def error(self, message: str) -> NoReturn:
        """Ends the process with exit code 2 and argparse's sentence. An argument that only seems to be missing, because an
        option is misspelt, is not what the user has to correct."""
        known = {option for action in self._actions for option in action.option_strings}
        options = [
            word for word in self._words if word.startswith("--") and word.partition("=")[0] not in {*known, "--"}
        ]
        if options and "are required" in message:
            self.unexpected(options[0])
        self._refuse(message.removeprefix("argument "))

    def _refuse(self, sentence: str, tip: str = "") -> NoReturn:
        more = f"\n\n  tip: {tip}" if tip else ""
        complain(f"{sentence}{more}\n\n{self.format_usage()}\nFor more information, try '--help'.")
        if self._as_json:
            answer(f"{sentence}; {tip}" if tip else sentence, MISUSED)
        sys.exit(MISUSED)


def similar(what: str, wrong: str, known: Iterable[str]) -> str:
    """Returns "a similar WHAT exists: 'NAME'" for the known name that `wrong` begins or most resembles, or an empty
    string."""
    names = list(known)
    begun = [name for name in names if name.startswith(wrong) and len(wrong.strip("-")) > 1]
    found = begun or difflib.get_close_matches(wrong, names, 1, _SIMILAR)
    return f"a similar {what} exists: '{found[0]}'" if found else ""


def page(package: str) -> str:
    """Returns the help page of a package."""
    return importlib.resources.files(package).joinpath("help.txt").read_text(encoding="utf-8")


def usage(package: str) -> str:
    """Returns the first paragraph of a help page."""
    return page(package).partition("\n\n")[0] + "\n"


def sentence(error: Exception) -> str:
    """Describes an error, without the errno that Python puts before it, and with the next step where that is clear."""
    if isinstance(error, OSError) and error.strerror and not hasattr(error, "exit_code"):
        said = f"{os.fsdecode(error.filename)}: {error.strerror}" if error.filename else error.strerror
        step = _NEXT_STEPS.get(error.errno or 0)
        return f"{said}; {step}" if step else said
    return str(error)


def complain(text: str) -> None:
    """Prints an error to stderr. Control characters are shown as codes: a path, an export's name or a tool's message may
    come from the evidence."""
    _print(f"error: {text}")


def warn(text: str) -> None:
    """Prints a warning to stderr, in the same way."""
    _print(f"warning: {text}")


def _print(text: str) -> None:
    for line in text.splitlines():
        body = line.lstrip(" ")
        print(" " * (len(line) - len(body)) + plain(body, LINE_CHARS_MAX), file=sys.stderr)


def fail(text: str, code: int, as_json: bool, error: BaseException | None = None) -> int:
    """Prints an error to stderr and, with `as_json`, to stdout as well; returns the exit code."""
    complain(text)
    if as_json:
        answer(text, code, error)
    return code


def answer(text: str, code: int, error: BaseException | None = None) -> None:
    """Prints an error to stdout, as JSON of docs/reference/json/failed.json. An exception knows its kind and its next steps
    if it is a `cheetah.Error`; the kind of others follows from the exit code."""
    failed: dict[str, Any] = {"error": printable(text), "exit_code": code, "kind": KIND_OF[code]}
    if isinstance(error, Error):
        failed["kind"] = error.kind
        if error.next:
            failed["next"] = list(error.next)
    print(json.dumps(failed))
