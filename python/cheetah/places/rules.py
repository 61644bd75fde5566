"""Tries YARA rules on the content of files: on all, or on those in which an atom of the rules was found where the bytes lie.

The files are opened and read as those of a triage, and so are the rules.
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytsk3
import yara_x

from cheetah.places.files import Files
from cheetah.places.listing import PipeWorker, VolumeListing, said, say_volumes
from cheetah.places.ntfs_records import Run
from cheetah.places.pipe import Pipe
from cheetah.triage.content import analysis
from cheetah.triage.filesystem import opening
from cheetah.triage.hub import plan
from cheetah.triage.reading.reader import OpenStream
from cheetah.triage.reading.worker import Worker
from cheetah.triage.search import atom_map, atoms, scan
from cheetah.triage.settings import Settings
from cheetah.triage.tables import content_rows
from cheetah.triage.task import Content, Entry, Result, Volume

_AT_ONCE = 100
"""The atoms, or rules, that one message has."""
_TELL_S = 1.0
_FILE_BYTES_MAX = 1 << 62
"""No file is too large."""
_ENCRYPTED = "it is encrypted by the file system, and the rules were tried on its bytes as they are stored"
_IN_PIECES = (
    f"it was tried in pieces of {scan.WINDOW_BYTES >> 20} MiB, and a condition of the rules needs the whole of it"
)
_FAULTS = (MemoryError, RecursionError, ValueError, ArithmeticError, LookupError, SystemError, yara_x.ScanError)


def say_all(pipe: Pipe, order: dict[str, Any]) -> None:
    """Says how rules are divided, or tries them, as is asked for."""
    if "split" in order:
        _say_split(pipe, [(name, text) for name, text in order["split"]])
    else:
        _say_matches(pipe, order)


def _say_split(pipe: Pipe, files: Sequence[tuple[str, str]]) -> None:
    """Says the rules in files, their atoms, and the rules that have none; or why they do not compile."""
    try:
        engine = scan.Engine((), files)
    except ValueError as error:
        pipe.say(refused=said(str(error)))
    else:
        split = atoms.of_texts(files)
        pipe.say(ignore_case=split.ignore_case)
        for some in _some(split.words):
            pipe.say(atoms=some)
        for some in _some([(one.file, one.rule, one.why) for one in split.central]):
            pipe.say(central=some)
        for some in _some(engine.rules):
            pipe.say(names=some)
    pipe.say(end=True)
    pipe.flush()


def _some(values: Sequence[Any]) -> Iterator[list[Any]]:
    """Yields values in lists of limited length."""
    for first in range(0, len(values), _AT_ONCE):
        yield list(values[first : first + _AT_ONCE])


def _say_matches(pipe: Pipe, order: dict[str, Any]) -> None:
    """Tries rules on the files of the source."""
    wanted = order["rules"]
    rules = [(name, text) for name, text in wanted["files"]]
    engine = scan.Engine((), rules, keeps_matches=True)
    settings = Settings(source="", out="", hashes=(), max_file=_FILE_BYTES_MAX)
    worker = PipeWorker(pipe, order["near"], settings)
    tools = analysis.Tools(worker, engine, _map_of(pipe.size, wanted["searched"], rules))
    need_whole = atoms.need_whole_files(rules)
    say_volumes(
        pipe,
        order,
        worker,
        lambda volume: _VolumeRules(worker, volume, pipe, (tools, need_whole)).say(),
        needs_files=True,
    )


def _map_of(size: int, searched: dict[str, Any] | None, rules: Sequence[tuple[str, str]]) -> atom_map.AtomMap | None:
    """Returns where atoms of the rules were found; None if they were not searched for, so that every file is read."""
    if searched is None:
        return None
    split = atoms.of_texts(rules)
    blocks = np.array(searched["blocks"], np.int64)
    gaps = np.array([(offset, offset + length) for offset, length in searched["gaps"]], np.int64).reshape(-1, 2)
    words = tuple(atom for atom, _ in split.atoms)
    return atom_map.AtomMap(size, searched["shift"], blocks, gaps, words, split.ignore_case)


@dataclasses.dataclass
class _Counts:
    """What became of files since this was said the last time."""

    tried: int = 0
    """Files on whose content the rules were tried."""
    without_atoms: int = 0
    skipped: int = 0
    in_pieces: int = 0
    cut: int = 0
    """How often a rule has more matches in a file than are listed."""


class _VolumeRules(VolumeListing):
    """Tries rules on the files of a volume."""

    def __init__(self, worker: Worker, volume: Volume, pipe: Pipe, rules: tuple[analysis.Tools, bool]):
        super().__init__(worker, volume, pipe)
        self._rules = rules

    def _all(self) -> None:
        system = opening.file_system(self._worker, self._volume.index)
        tools, _ = self._rules
        tools.maps.begin()
        files = _RuleFiles(self._worker, self._volume, system, self._pipe, self._rules)
        try:
            self._files(files)
        finally:
            files.tell()


class _RuleFiles:
    """Tries rules on each stream once, under its first name; under each, if a rule asks for names."""

    counts_names = True

    def __init__(
        self, worker: Worker, volume: Volume, system: pytsk3.FS_Info, pipe: Pipe, rules: tuple[analysis.Tools, bool]
    ):
        """`rules` are what tries them, and whether they need whole files."""
        self._worker = worker
        self._volume = volume
        self._pipe = pipe
        self._tools, self._need_whole_files = rules
        self._seen: set[tuple[Any, ...]] = set()
        self._counts = _Counts()
        self._told_s = time.monotonic()
        self._places: Files | None = None
        # Otherwise it is not known where files lie, which does not keep rules from being tried.
        with contextlib.suppress(OSError):
            self._places = Files(worker, volume, system, pipe, lambda sentence: None)
        worker.take_unreadable()
        worker.beat = self._beat

    def rows(self, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        """Returns the rows of files with content of their own."""
        mask = content_rows.has_content(batch)
        mask &= np.array([why is None for why in content_rows.skipped(batch)], bool)
        return list(batch.filter(pa.array(mask)).to_pylist())

    def say(self, row: dict[str, Any]) -> None:
        """Tries the rules on a file."""
        entry = plan.entry_of(-1, row)
        key = (*entry.stream, entry.path) if self._tools.asks_for_names else entry.stream
        if key in self._seen:
            return
        self._seen.add(key)
        self._worker.begin()
        try:
            self._say(row, entry)
        except _FAULTS as error:
            # One hostile file must not hide the others.
            self._untried(row, f"a fault of this program: {type(error).__name__}: {error}")
        self._beat()

    def _say(self, row: dict[str, Any], entry: Entry) -> None:
        one = analysis.open_stream(self._worker, self._tools, entry, Result())
        if isinstance(one, Content):
            self._counts.skipped += one.read_state == "skipped"
            if one.read_state != "skipped":
                self._untried(row, one.why or "it could not be opened")
            return
        if not one.without_atoms:
            self._try(row, one)
            return
        self._counts.without_atoms += 1
        if one.encrypted:
            self._untried(row, _ENCRYPTED)

    def _beat(self) -> None:
        """Says what became of files, if that was some time ago, so that the other program knows that this one goes on."""
        if time.monotonic() - self._told_s > _TELL_S:
            self.tell()

    def tell(self) -> None:
        """Says what became of files."""
        self._pipe.say(tried=dataclasses.asdict(self._counts))
        self._pipe.flush()
        self._counts = _Counts()
        self._told_s = time.monotonic()

    def _try(self, row: dict[str, Any], one: OpenStream) -> None:
        read = analysis.read_stream(self._tools, one, self._worker, gives_up=True)
        self._counts.tried += 1
        self._counts.in_pieces += read.in_pieces
        in_pieces = _IN_PIECES if read.in_pieces and self._need_whole_files else None
        whys = (_ENCRYPTED if one.encrypted else None, read.reader.why(), read.unsearched, in_pieces)
        if why := "; ".join(filter(None, whys)):
            self._untried(row, why)
        if not read.hits:
            return
        where = _finder(self._runs(row))
        for hit in read.hits:
            self._counts.cut += hit.more_matches
            matches: Iterable[scan.StringMatch | None] = hit.matches or [None]
            for match in matches:
                self._say_match(row, hit, match, where)

    def _runs(self, row: dict[str, Any]) -> list[Run]:
        """Returns where the content of a file lies; nothing if that is not known."""
        runs: list[Run] = []
        if self._places is not None:
            with contextlib.suppress(OSError):
                runs = self._places.places(row)
        # After a failed read, The Sleuth Kit may leave runs out.
        return [] if self._worker.take_unreadable() else runs

    def _say_match(
        self, row: dict[str, Any], hit: scan.Hit, match: scan.StringMatch | None, where: Callable[[int], int | None]
    ) -> None:
        """Says a match of a string; or, without one, that the condition of a rule holds."""
        self._pipe.say(
            match={
                "rule": hit.rule,
                "file": hit.file,
                "tags": list(hit.tags),
                "string": None if match is None else match.string,
                "file_offset": None if match is None else match.offset,
                "offset": None if match is None else where(match.offset),
                "len": 0 if match is None else match.length,
                "content": "" if match is None else match.content.hex(),
                "wide": match is not None and match.wide,
                "volume": self._volume.index,
                "path": row["path"],
                "deleted": not row["allocated"],
            }
        )

    def _untried(self, row: dict[str, Any], why: str) -> None:
        """Says that rules were not tried on all of a file."""
        self._pipe.say(untried={"volume": self._volume.index, "path": row["path"], "why": said(why)})


def _finder(runs: Sequence[Run]) -> Callable[[int], int | None]:
    """Returns what says where a byte of a file lies in the source."""
    starts = np.array([at for at, _, _ in runs], np.int64)

    def where(offset: int) -> int | None:
        place = int(np.searchsorted(starts, offset, side="right")) - 1
        if place < 0:
            return None
        at, begin, length = runs[place]
        return begin + offset - at if offset - at < length else None

    return where
