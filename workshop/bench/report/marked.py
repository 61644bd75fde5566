"""Parts of documents that are written by the benchmark, between two comments."""

from __future__ import annotations

from collections.abc import Iterable


def begin(name: str) -> str:
    """Returns the comment before a part."""
    return f"<!-- {name}: written by workshop/bench/run report -->"


def end(name: str) -> str:
    """Returns the comment after a part."""
    return f"<!-- end of {name} -->"


def replaced(text: str, name: str, lines: Iterable[str]) -> str:
    """Returns a document with these lines between the comments of a part; it must have both."""
    before, first, rest = text.partition(begin(name))
    _, last, after = rest.partition(end(name))
    if not (first and last):
        raise ValueError(f"the document lacks {begin(name)} or {end(name)}")
    return "\n".join([f"{before}{first}", *lines, f"{last}{after}"])
