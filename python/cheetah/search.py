"""Searching a source for words, regular expressions and well-known kinds of data."""

import itertools
import json
import os
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cheetah import _native

if TYPE_CHECKING:
    import pyarrow

# The largest list of words in a file.
LIST_BYTES_MAX = 64 << 20

# The rows that are gathered before they go into a table: rows of Python take many times their bytes.
ROWS_AT_ONCE = 1 << 16

# The columns of a table of hits.
NUMBERS = ("offset", "length")
TEXTS = ("pattern", "encoding", "text", "context", "inside", "node", "instance")


@dataclass(frozen=True)
class Gap:
    """A range that was not searched, in bytes. `state` is "unreadable", or "unread": the source does not have it yet."""

    offset: int
    length: int
    state: str
    why: str


@dataclass(frozen=True)
class Truncated:
    """A range that was searched only partly, in bytes: not all that it holds compressed was searched. `limit` is the limit that was reached
    first: "size" of what such data hold, "depth" of such data in each other, "hits" in them, "work" for all of them, or "places" where
    they begin. Of the "end" of a source that is shorter than its partition tables or file systems say, the range is what it lacks."""

    offset: int
    length: int
    limit: str


@dataclass(frozen=True)
class Pattern:
    """Something that was searched for: `kind` is "word", "regex", "find" or "header". `encodings` are those in which it was searched:
    none if it cannot be written in any. `hits` counts its hits so far."""

    kind: str
    pattern: str
    encodings: tuple[str, ...]
    hits: int


@dataclass(frozen=True)
class Inside:
    """What became of compressed data so far. `streams` with `bytes` were unpacked and searched, with `hits`: `cut` of them up to a limit of
    size, growth, depth or hits, `damaged` up to the damage, or with a wrong checksum, and `unreadable` up to where the source cannot be
    read. `given_up` places were not searched: there were too many, or those before cost too much. At `invalid` places that looked like
    the beginning of compressed data, nothing could be unpacked. `finished` says whether the search of them has ended."""

    streams: int
    bytes: int
    hits: int
    cut: int
    damaged: int
    given_up: int
    unreadable: int
    invalid: int
    finished: bool


@dataclass(frozen=True)
class KnownRun:
    """Blocks that follow each other in a known file and in the source: their start and length in the source, the file, and the start
    in it, in bytes."""

    offset: int
    length: int
    file: str
    file_offset: int


@dataclass(frozen=True)
class KnownFile:
    """A known file: its blocks of 4 KiB, without those that many files have, and how many of them were found in runs."""

    file: str
    blocks: int
    found: int


@dataclass(frozen=True)
class Known:
    """What was found of known files: the runs in the order of their offsets, all files, and the number of blocks that were found
    alone."""

    runs: tuple[KnownRun, ...]
    files: tuple[KnownFile, ...]
    singles: int


@dataclass(frozen=True)
class Coverage:
    """How much of a source was searched so far. Without `complete`, nothing is known of the rest. `at_nodes` says what was
    searched where, in bytes, if nodes were asked, and `inside` what became of compressed data, if these are searched. `truncated` has
    the ranges that were searched only partly, because a limit was reached, and `truncated_bytes` their bytes, which `searched_bytes`
    includes."""

    size_bytes: int
    searched_bytes: int
    unreadable_bytes: int
    unsearched_bytes: int
    gaps: tuple[Gap, ...]
    patterns: tuple[Pattern, ...]
    at_nodes: dict[str, dict[str, int]] | None
    inside: Inside | None
    truncated_bytes: int = 0
    truncated: tuple[Truncated, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every byte was searched, and of compressed data, if these are searched, all that is whole."""
        inside = self.inside
        left = 0 if inside is None else inside.cut + inside.given_up + inside.unreadable
        inside_complete = inside is None or (inside.finished and left == 0)
        return self.searched_bytes == self.size_bytes and inside_complete and self.truncated_bytes == 0


@dataclass(frozen=True)
class Wanted:
    """What is searched for, as on the command line."""

    words: list[str]
    regexes: list[str]
    kinds: list[str]
    inside: list[str]
    known: list[str]
    blocks: str | None
    encodings: list[str]
    ignore_case: bool
    context_bytes: int
    atoms: list[str] = field(default_factory=list)
    ignore_atom_case: bool = False

    @property
    def is_without_patterns(self) -> bool:
        """Whether nothing is searched for that may be inside compressed data."""
        return not (self.words or self.regexes or self.kinds)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is searched for."""
        return self.is_without_patterns and not (self.inside or self.known or self.blocks is not None or self.atoms)


class Hits(Iterator[_native.Hit]):
    """The hits of a search, in the order of their offsets; those inside compressed data come last. The search goes on as they
    are taken.

    A hit has `offset` and `length` in bytes, `pattern`, `encoding`, `text`, `context` and `inside`: of a hit inside compressed data,
    which begin at `offset`, the way from there, such as "GZIP-512", and otherwise None. `node` is the name of the node that found it, and
    `instance` that of its run; both are None if this process did.
    """

    def __init__(self, native: _native.Hits, size_bytes: int, stacklevel: int = 3):
        self._native = native
        self._size_bytes = size_bytes
        self._rest: Iterator[_native.Hit] = iter(())
        if native.known_left_out:
            said = f"of the known files, {native.known_left_out} links or special files are left out: links are not followed"
            warnings.warn(said, stacklevel=stacklevel)

    def __next__(self) -> _native.Hit:
        while (hit := next(self._rest, None)) is None:
            hits = self._native.next()
            if hits is None:
                raise StopIteration
            self._rest = iter(hits)
        return hit

    @property
    def coverage(self) -> Coverage:
        """How much was searched so far: of all, once the last hit was taken. Of hits that are found and not yet taken, the
        bytes count as searched."""
        searched, unreadable, unsearched, gaps, patterns, nodes, inside, truncated = self._native.coverage()
        return Coverage(
            size_bytes=self._size_bytes,
            searched_bytes=searched,
            unreadable_bytes=unreadable,
            unsearched_bytes=unsearched,
            gaps=tuple(Gap(*gap) for gap in gaps),
            patterns=tuple(Pattern(kind, text, tuple(names), hits) for kind, text, names, hits in patterns),
            at_nodes=None if nodes is None else json.loads(nodes),
            inside=None if inside is None else Inside(*inside),
            truncated_bytes=truncated[0],
            truncated=tuple(Truncated(*found) for found in truncated[1]),
        )

    @property
    def known(self) -> Known | None:
        """What was found of known files: None before the source was searched to its end, and if none were given."""
        found = self._native.known()
        if found is None:
            return None
        runs, files, singles = found
        return Known(tuple(KnownRun(*run) for run in runs), tuple(KnownFile(*file) for file in files), singles)

    def atom_places(self) -> dict[str, Any] | None:
        """Returns where atoms of rules were found, for what tries the rules: once, and None if there are no atoms, or the source was not
        searched to its end."""
        found = self._native.atoms()
        if found is None:
            return None
        blocks, gaps, shift = found
        return {"blocks": blocks, "gaps": gaps, "shift": shift}

    def to_arrow(self) -> "pyarrow.Table":
        """Returns the hits that were not taken yet as a table. Needs pyarrow."""
        import pyarrow as pa

        fields = [(name, pa.uint64()) for name in NUMBERS] + [(name, pa.string()) for name in TEXTS]
        return table(map(row_of, self), pa.schema(fields))


def row_of(hit: _native.Hit) -> dict[str, Any]:
    """The row of a hit in a table."""
    return {name: getattr(hit, name) for name in (*NUMBERS, *TEXTS)}


def table(rows: Iterator[dict[str, Any]], schema: "pyarrow.Schema") -> "pyarrow.Table":
    """The table of rows."""
    import pyarrow as pa

    batches = []
    while some := list(itertools.islice(rows, ROWS_AT_ONCE)):
        batches.append(pa.RecordBatch.from_pylist(some, schema))
    return pa.Table.from_batches(batches, schema)


def paths_of(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[str]:
    """The paths, of which there may be one alone."""
    return [os.fspath(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]


def listed(words: str | os.PathLike[str] | Iterable[str]) -> list[str]:
    """The words in a file, or the words."""
    if not isinstance(words, str | os.PathLike):
        return list(words)
    with open(words, "rb") as file:
        content = file.read(LIST_BYTES_MAX + 1)
    if len(content) > LIST_BYTES_MAX:
        raise ValueError(f"{words} is too large for a list of words: divide it")
    return _native.read_words(content)
