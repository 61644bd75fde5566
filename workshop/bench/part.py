"""A part of the benchmark."""

import dataclasses
import typing

from cheetah.bench.figure import Figure


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of the benchmark: `workshop/bench/parts/KEY.py`, or `module`."""

    key: str
    title: str
    about: str
    # Further lines about its figures.
    more: typing.Callable[[list[Figure]], list[str]] = lambda _: []
    module: str = ""
    # It takes hours, and is measured only when named.
    long: bool = False
    # Some of its cases can be measured alone, with --only.
    has_cases: bool = False
