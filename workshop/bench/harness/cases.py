"""The cases of a part that a measurement is limited to."""

from collections.abc import Iterable
from typing import TypeVar

from bench.settings import Settings
from cheetah.bench.failure import BenchError

T = TypeVar("T")


def chosen(cases: Iterable[T], settings: Settings) -> list[T]:
    """Returns the cases whose names, as `str` gives them, have the words of `--only`; all without it. Raises BenchError,
    with all names, if none has."""
    every = list(cases)
    found = [case for case in every if settings.only in str(case)]
    if not found:
        raise BenchError(f"no case has '{settings.only}' in its name; there are: {'; '.join(map(str, every))}")
    return found
