"""Compares two runs: faster steps, slower ones, and differences that may be chance."""

import dataclasses
import itertools
import statistics
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any

from cheetah.bench.figure import Figure, overlap
from cheetah.bench.results import Part, Results, figures
from cheetah.bench.sheet import NOTE_CHARS_MAX, Line, Sheet, by_chance, name, spread
from cheetah.bench.units import MIB
from cheetah.page.visible import plain

TIMES = ("s", "ms", "µs", "ns")
BYTES_PER_S = "bytes/s"
_HEADS = ("A", "B", "B is", "verdict")


class Relation(StrEnum):
    """The relation of B to A."""

    FASTER = "faster"
    SLOWER = "slower"
    BETTER = "better"
    """For figures that are neither times nor rates."""
    WORSE = "worse"
    SAME = "no difference beyond the spread"
    ONCE = "measured once: no spread is known"
    """At least one side was measured once, and they differ."""
    ONLY_A = "only in A"
    ONLY_B = "only in B"


BEYOND = (Relation.FASTER, Relation.SLOWER, Relation.BETTER, Relation.WORSE)


@dataclasses.dataclass(frozen=True)
class Row:
    """One contender of one figure in both runs. Values are in the figure's unit, in the order of the rounds."""

    part: str
    figure: str
    what: str
    unit: str
    contender: str
    a: tuple[float, ...]
    b: tuple[float, ...]
    better: str = "higher"

    def times(self) -> float | None:
        """Returns how many times as good B is as A, by the medians: above 1 it is better. None if one is missing or
        zero."""
        if not self.a or not self.b:
            return None
        a, b = statistics.median(self.a), statistics.median(self.b)
        above, below = (b, a) if self.better == "higher" else (a, b)
        return above / below if below else None

    def verdict(self) -> Relation:
        """Returns the relation of B to A."""
        if not self.a:
            return Relation.ONLY_B
        if not self.b:
            return Relation.ONLY_A
        if overlap(self.a, self.b):
            return Relation.SAME
        if min(len(self.a), len(self.b)) < 2:
            return Relation.ONCE
        gained = (statistics.median(self.b) > statistics.median(self.a)) == (self.better == "higher")
        if self.unit in TIMES or self.unit.endswith("/s"):
            return Relation.FASTER if gained else Relation.SLOWER
        return Relation.BETTER if gained else Relation.WORSE

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON form."""
        return {
            **{key: getattr(self, key) for key in ("part", "figure", "what", "unit", "contender", "better")},
            "a": _shares(self.a),
            "b": _shares(self.b),
            "times": self.times(),
            "verdict": str(self.verdict()),
        }


def _shares(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    middle = statistics.median(values)
    return {"median": middle, "lowest": min(values), "highest": max(values), "rounds": len(values)}


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A comparison of two runs."""

    rows: tuple[Row, ...]
    warnings: tuple[str, ...]
    """Differences other than the storage, a sentence each."""

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON form."""
        return {"warnings": list(self.warnings), "rows": [row.to_json() for row in self.rows]}

    def sheet(self) -> Sheet:
        """Returns the table."""
        lines: list[Line] = []
        for key, rows in itertools.groupby(self.rows, key=lambda row: (row.part, row.figure, row.unit)):
            shown = list(rows)
            unit = "MiB/s" if shown[0].unit == BYTES_PER_S else shown[0].unit
            lines.append(Line(f"{key[0]}: {plain(shown[0].what, 120)} ({name(unit)})", ("",) * len(_HEADS), "group"))
            lines += [Line(f"  {name(row.contender)}", _cells(row)) for row in shown]
        beyond = [row for row in self.rows if row.verdict() in BEYOND]
        chance = by_chance((len(row.a), len(row.b)) for row in beyond)
        notes = [f"note: {plain(warning, NOTE_CHARS_MAX)}" for warning in self.warnings]
        legend = [] if self.rows else ["there is no figure in either"]
        return Sheet(
            "A and B: median [lowest – highest]", _HEADS, tuple(lines), (*legend, *chance, *notes), frozenset({3})
        )


def _cells(row: Row) -> tuple[str, ...]:
    scale = MIB if row.unit == BYTES_PER_S else 1
    a, b = (spread([value / scale for value in values]) if values else "" for values in (row.a, row.b))
    times = row.times()
    return a, b, "" if times is None else f"{times:.2f} ×", str(row.verdict())


def compare(a: Results, b: Results) -> Comparison:
    """Compares run B with run A: rows match by part, figure, unit, and contender."""
    found: dict[tuple[str, str, str, str], Row] = {}
    for side, run in enumerate((a, b)):
        for part in run.parts:
            for figure in figures(part):
                for contender, values in figure.samples.items():
                    key = (part["part"], figure.id, figure.unit, contender)
                    row = found.get(key) or _row(part, figure, contender)
                    kept = tuple(values)
                    found[key] = dataclasses.replace(row, b=kept) if side else dataclasses.replace(row, a=kept)
    # Rows of one figure stand together, even if a contender is only in B.
    order = {key: number for number, key in enumerate(dict.fromkeys(key[:3] for key in found))}
    rows = sorted(found.values(), key=lambda row: order[row.part, row.figure, row.unit])
    return Comparison(tuple(rows), tuple(_warnings(a, b)))


def _row(part: Part, figure: Figure, contender: str) -> Row:
    return Row(part["part"], figure.id, figure.what, figure.unit, contender, (), (), figure.better)


def _warnings(a: Results, b: Results) -> Iterator[str]:
    for key in dict.fromkeys([*a.machine, *b.machine]):
        yield from _differs(f"machine, {key}", a.machine.get(key), b.machine.get(key))
    for first in a.parts:
        second = b.part(first["part"])
        if second is not None:
            yield from _of_part(first, second)


def _of_part(a: Part, b: Part) -> Iterator[str]:
    key = a["part"]
    for one, part in (("A", a), ("B", b)):
        if part.get("quick"):
            yield f"{key}: {one} is a quick run, which shows that it works and not how fast"
        if part.get("problem"):
            yield f"{key}: {one} is incomplete: {part['problem']}"
    yield from _differs(f"{key}, rounds", a.get("rounds"), b.get("rounds"))
    for member in ("settings", "about"):
        first, second = a.get(member), b.get(member)
        if isinstance(first, dict) and isinstance(second, dict):
            for what in dict.fromkeys([*first, *second]):
                # More about targets follows below.
                if what != "targets":
                    yield from _differs(f"{key}, {what}", first.get(what), second.get(what))
    for group, label in (("steps", "key"), ("targets", "name")):
        first, second = ({one[label]: one for one in part.get(group, ())} for part in (a, b))
        for one in first:
            if one in second:
                yield from _of_entry(f"{key}, {one}", first[one], second[one])


def _of_entry(what: str, a: dict[str, Any], b: dict[str, Any]) -> Iterator[str]:
    """Yields differences of a step's tool or a target's description; free space is ignored."""
    yield from _differs(f"{what}, version", a.get("version"), b.get("version"))
    first, second = a.get("about"), b.get("about")
    if isinstance(first, dict) and isinstance(second, dict):
        for key in dict.fromkeys([*first, *second]):
            if "free" not in key:
                yield from _differs(f"{what}, {key}", first.get(key), second.get(key))


def _differs(what: str, a: object, b: object) -> Iterator[str]:
    if a != b:
        yield f"{what}: {_told(a)} in A, {_told(b)} in B"


def _told(value: object) -> str:
    return "nothing" if value is None else str(value)[:200]
