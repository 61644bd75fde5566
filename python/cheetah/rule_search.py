"""Searching a source with YARA rules, which are tried on its files: see `cheetah.Device.search`."""

import contextlib
import dataclasses
import json
import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from cheetah import _native
from cheetah.search import NUMBERS, TEXTS, Coverage, Hits, Known, Wanted, row_of, table

if TYPE_CHECKING:
    import pyarrow

UNTRIED_MAX = 1000
"""The files that are named because rules were not tried on all of them."""
_READ_BYTES_MAX = 16 << 20
_LINE_BYTES_MAX = 1 << 20
_SILENCE_MAX_S = 300.0
"""How long the process may neither read nor say anything: a hostile file system can keep The Sleuth Kit busy without an end."""
_LOOK_S = 1.0
_HEADER = struct.Struct("<BI")
# Others may hold secrets, and what the process reads is hostile.
_ENVIRONMENT = (
    "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "PYTHONHOME", "PYTHONPATH", "PYTHONUSERBASE", "TMPDIR", "VIRTUAL_ENV",
)  # fmt: skip


class Source(Protocol):
    """What has the files: a `cheetah.Device`."""

    size: int
    sector_size: int | None
    locked: list[str]
    logical: Any
    unlocked: Any

    def pread(self, offset: int, length: int) -> bytes:
        """Returns bytes, or raises OSError."""


@dataclasses.dataclass(frozen=True)
class RuleHit:
    """A match of a string of a rule in a file; without a string, a file for which the condition holds. `offset` is its offset in the
    source: None without a string, and if the content is stored otherwise than it is read. `content` has its first 256 bytes. `rules`
    is the name of the file of the rule, and `state` "allocated" or "deleted"."""

    offset: int | None
    length: int
    rule: str
    rules: str
    tags: tuple[str, ...]
    string: str | None
    content: bytes
    volume: int
    path: str
    state: str
    file_offset: int | None


@dataclasses.dataclass(frozen=True)
class UntriedFile:
    """A file on which rules were not tried, or not to its end."""

    volume: int
    path: str
    why: str


@dataclasses.dataclass
class RuleCoverage:
    """What became of the files so far. Rules were tried on `tried` files, `in_pieces` of them in pieces of 32 MiB; `without_atoms` files
    have no atom of the rules. `skipped` files have no content of their own. On `untried_files` files, rules were not tried to the end:
    `untried` names the first of them. `cut` counts how often a rule has more matches in a file than are returned. `central` are the rules
    without atoms, as sentences; if there are any, all files are read. `searched` is what was searched in the bytes: for atoms, and for all
    else that was asked for; None if that is nothing.
    `problems` are sentences about files and volumes that may be missing, and `volumes` counts those whose files were listed."""

    tried: int = 0
    without_atoms: int = 0
    skipped: int = 0
    in_pieces: int = 0
    cut: int = 0
    untried_files: int = 0
    untried: list[UntriedFile] = dataclasses.field(default_factory=list)
    central: tuple[str, ...] = ()
    searched: Coverage | None = None
    problems: list[str] = dataclasses.field(default_factory=list)
    volumes: int = 0
    finished: bool = False

    @property
    def complete(self) -> bool:
        """Whether rules were tried on every file, and every byte was searched, if bytes are."""
        is_searched = self.searched is None or self.searched.complete
        return self.finished and is_searched and self.volumes > 0 and not self.problems and not self.untried_files


class RuleHits(Iterator["_native.Hit | RuleHit"]):
    """The hits of a search with rules: those of `cheetah.Hits`, if something else is searched for, and then the matches of the rules, file
    by file. The search goes on as they are taken."""

    def __init__(
        self, device: Source, rule_files: Iterable[str], wanted: Wanted, begin: Callable[[Wanted], _native.Hits]
    ):
        from cheetah.triage.search import atoms, scan

        if wanted.is_without_patterns and (wanted.inside or wanted.ignore_case):
            what = "inside" if wanted.inside else "ignore_case"
            raise ValueError(f"{what}: it changes nothing for rules; leave it out, or add words or the like")
        self._device = device
        self._rules = scan.read_rules(rule_files)
        # Raises ValueError, before anything is read.
        if not scan.Engine((), self._rules).rules:
            raise ValueError("there is no rule in these files: nothing would be searched for")
        split = atoms.of_texts(self._rules)
        if not split.central:
            wanted = dataclasses.replace(wanted, atoms=split.words, ignore_atom_case=split.ignore_case)
        self._bytes = None if wanted.is_empty else Hits(begin(wanted), device.size, stacklevel=4)
        self._hits = self._all()
        self._coverage = RuleCoverage(central=tuple(one.sentence() for one in split.central))

    def __next__(self) -> "_native.Hit | RuleHit":
        return next(self._hits)

    @property
    def coverage(self) -> RuleCoverage:
        """What became of the bytes and files so far: of all, once the last hit was taken."""
        if self._bytes is not None:
            self._coverage.searched = self._bytes.coverage
        return self._coverage

    @property
    def known(self) -> Known | None:
        """What was found of known files: see `cheetah.Hits.known`."""
        return None if self._bytes is None else self._bytes.known

    def to_arrow(self) -> "pyarrow.Table":
        """Returns the hits that were not taken yet as a table. The columns of hits are followed by those of matches of rules, whose
        `pattern` is the rule. Needs pyarrow."""
        import pyarrow as pa

        fields = [(name, pa.uint64()) for name in NUMBERS] + [(name, pa.string()) for name in TEXTS]
        fields += [("volume", pa.uint64()), ("path", pa.string()), ("state", pa.string()), ("file_offset", pa.uint64())]
        fields += [("rules", pa.string()), ("tags", pa.list_(pa.string())), ("string", pa.string())]
        return table(map(_row, self), pa.schema([*fields, ("content", pa.binary())]))

    def _all(self) -> Iterator["_native.Hit | RuleHit"]:
        places = None
        if self._bytes is not None:
            yield from self._bytes
            places = self._bytes.atom_places()
        first: int | None = 0
        while first is not None:
            order = self._order(first, places)
            with _Child(self._device, order) as child:
                first = yield from self._heard(child, first)
        self._coverage.finished = True

    def _order(self, first: int, places: dict[str, Any] | None) -> dict[str, Any]:
        """Returns what the process is told: to try the rules on the files of volumes from this number on."""
        device = self._device
        return {
            "first": first,
            "logical": device.logical,
            "locked": list(device.locked),
            "near": False,
            "rules": {"files": self._rules, "searched": places},
            "sector_size": device.sector_size,
            "size": device.size,
            "unlocked": device.unlocked,
        }

    def _heard(self, child: "_Child", first: int) -> Generator[RuleHit, None, int | None]:
        """Yields the matches that the process says. Returns the number of the volume with which another one goes on, or None."""
        current: int | None = None
        for message in child.messages():
            ((kind, value),) = message.items()
            if kind == "end":
                return None
            if kind == "begin":
                current = int(value)
            elif kind == "match":
                yield _hit(value)
            else:
                self._note(kind, value, first)
                current = None if kind == "done" else current
        if current is None or current < first:
            self._coverage.problems.append("the process that tries rules ended before it had found all volumes")
            return None
        self._coverage.problems.append(f"volume {current}: the process that tries rules ended in it")
        # The Sleuth Kit may crash. Each volume is tried once.
        return current + 1

    def _note(self, kind: str, value: Any, first: int) -> None:
        coverage = self._coverage
        if kind == "tried":
            for name, more in value.items():
                setattr(coverage, name, getattr(coverage, name) + more)
        elif kind == "untried":
            coverage.untried_files += 1
            if len(coverage.untried) < UNTRIED_MAX:
                coverage.untried.append(UntriedFile(value["volume"], value["path"], value["why"]))
        elif kind == "done":
            coverage.volumes += not value["problems"]
            coverage.problems += [f"volume {value['number']}: {why}" for why in value["problems"]]
        elif kind == "problems" and first == 0:
            coverage.problems += value
        elif kind == "volume" and first == 0:
            coverage.problems += [f"volume {value['number']}: {why}" for why in value["problems"]]


def _row(hit: "_native.Hit | RuleHit") -> dict[str, Any]:
    """Returns the row of a hit in a table."""
    if not isinstance(hit, RuleHit):
        return row_of(hit)
    row = dict(vars(hit))
    return {"pattern": row.pop("rule"), **row}


def _hit(found: dict[str, Any]) -> RuleHit:
    return RuleHit(
        offset=found["offset"],
        length=found["len"],
        rule=found["rule"],
        rules=found["file"],
        tags=tuple(found["tags"]),
        string=found["string"],
        content=bytes.fromhex(found["content"]),
        volume=found["volume"],
        path=found["path"],
        state="deleted" if found["deleted"] else "allocated",
        file_offset=found["file_offset"],
    )


class _Child:
    """The process that tries rules, which reads a device through its pipes."""

    def __init__(self, device: Source, order: dict[str, Any]):
        self._device = device
        self._order = order
        self._waiting_since_s: float | None = None
        self._is_over = threading.Event()

    def __enter__(self) -> "_Child":
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "cheetah.places"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # NumPy's library for matrices would start a thread for each processor, and is not used.
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ} | {"OPENBLAS_NUM_THREADS": "1"},
        )
        threading.Thread(target=self._watch, daemon=True).start()
        self._tell(json.dumps(self._order).encode("ascii") + b"\n")
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                # What it was not told no longer matters.
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process.wait()

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yields what it says until it ends, and answers what it reads."""
        while (line := self._line()).endswith(b"\n"):
            message = json.loads(line)
            if "read" not in message:
                yield message
                continue
            offset, length = message["read"]
            if length > _READ_BYTES_MAX:
                return
            self._answer(offset, length)

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        self._waiting_since_s = time.monotonic()
        line = self._process.stdout.readline(_LINE_BYTES_MAX)
        self._waiting_since_s = None
        return line

    def _watch(self) -> None:
        """Ends the process if it is waited for for too long."""
        while not self._is_over.wait(_LOOK_S):
            since_s = self._waiting_since_s
            if since_s is not None and time.monotonic() - since_s > _SILENCE_MAX_S:
                self._process.kill()
                return

    def _answer(self, offset: int, length: int) -> None:
        try:
            failed, content = 0, self._device.pread(offset, length)
        except (OSError, ValueError) as error:
            failed, content = 1, str(getattr(error, "strerror", None) or error).encode()
        self._tell(_HEADER.pack(failed, len(content)) + content)

    def _tell(self, content: bytes) -> None:
        assert self._process.stdin is not None
        self._waiting_since_s = time.monotonic()
        # If it has died, that is noticed when it says nothing.
        with contextlib.suppress(OSError):
            self._process.stdin.write(content)
            self._process.stdin.flush()
        self._waiting_since_s = None
