"""Paths as text without loss, for the Rust side, JSON and reports.

A path is any bytes; Python keeps those that are not UTF-8 as lone surrogates (`os.fsdecode`), which no UTF-8 text may
hold. The text of such a path is `bytes:` and the path, in which each such byte, each control character and each percent
sign is `%` and two hexadecimal digits: `bytes:/cases/caf%E9.raw`. So is a path that begins with `bytes:`. Any other path
is its own text.
"""

import os
from typing import Any

from cheetah import _native


def to_text(path: str | os.PathLike[str]) -> str:
    """Returns the text of a path."""
    return _native.path_to_text(os.fspath(path))


def typed_to_text(typed: str) -> str:
    """Returns the text of an argument that a user typed, who may have typed a text: UTF-8 as it is."""
    return typed if _is_utf8(typed) else to_text(typed)


def to_path(text: str) -> str:
    """Returns the path of a text, as `os.fsdecode` returns paths."""
    return _native.text_to_path(typed_to_text(text))


def texts(value: Any) -> Any:
    """Returns a value for JSON, in which every string with bytes that are not UTF-8 is written as a path is."""
    match value:
        case str():
            return _to_json(value)
        case dict():
            return {texts(key): texts(one) for key, one in value.items()}
        case list() | tuple():
            return [texts(one) for one in value]
        case _:
            return value


def printable(sentence: str) -> str:
    """Returns a sentence that may hold paths as UTF-8: a byte that is not is shown as \\xE9."""
    return sentence.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _to_json(text: str) -> str:
    try:
        return typed_to_text(text)
    except UnicodeEncodeError:
        # Half of a pair of surrogates, which no path has.
        return text.encode("utf-8", "backslashreplace").decode()


def _is_utf8(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)
