"""A journal of finished rounds, so that a measurement of hours may be cut off, or get more rounds on another day."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import pickle
from collections.abc import Callable, Mapping
from typing import Any

from bench.settings import Settings
from bench.tools import cheetah
from cheetah.bench.failure import BenchError

# The result of each contender.
Round = dict[str, Any]


def conditions(part: str, settings: Settings, machine: Mapping[str, str]) -> dict[str, Any]:
    """Returns what all rounds of a measurement have in common. Their number may grow."""
    with open(cheetah.binary(), "rb") as file:
        program = hashlib.file_digest(file, "sha256").hexdigest()
    return {"part": part, "quick": settings.quick, "full": settings.full, "program": program, "machine": dict(machine)}


@dataclasses.dataclass(frozen=True)
class Measurement:
    """The finished rounds of one call of `interleave`, and a function that records another."""

    finished: list[Round]
    add: Callable[[Round], None]


class Journal:
    """The finished rounds of a part, in a file."""

    def __init__(self, path: str, wanted: dict[str, Any], *, resume: bool = False) -> None:
        """Begins a journal, or goes on with one of equal conditions. Raises BenchError if there is none."""
        self._path = path
        self._rounds: dict[tuple[str, int], list[Round]] = {}
        self._uses: dict[str, int] = {}
        if resume:
            self._read(wanted)
        else:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                pickle.dump(wanted, file)

    def _read(self, wanted: dict[str, Any]) -> None:
        """Reads the entries. One that was cut off in mid-write ends the file."""
        try:
            file = open(self._path, "r+b")
        except FileNotFoundError:
            raise BenchError(f"{self._path} does not exist, so there is nothing to resume; omit --resume") from None
        with file:
            entries, end = [], 0
            try:
                while True:
                    entries.append(pickle.load(file))
                    end = file.tell()
            except (EOFError, pickle.UnpicklingError):
                file.truncate(end)
        had = entries[0] if entries else {}
        if different := [key for key in wanted if had.get(key) != wanted[key]]:
            raise BenchError(f"{self._path} has another {' and '.join(different)}; omit --resume to begin anew")
        for key, results in entries[1:]:
            self._rounds.setdefault(key, []).append(results)

    def _add(self, key: tuple[str, int], results: Round) -> None:
        with open(self._path, "ab") as file:
            pickle.dump((key, results), file)

    def measurement(self, label: str) -> Measurement:
        """Returns the next measurement with this label."""
        key = (label, self._uses.get(label, 0))
        self._uses[label] = key[1] + 1
        return Measurement(self._rounds.get(key, []), functools.partial(self._add, key))


def path_of(part: str, folder: str) -> str:
    """Returns the path of a part's journal."""
    return os.path.join(folder, f"{part}.rounds")
