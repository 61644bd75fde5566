"""The vocabulary between the hub and its workers: tasks and results. All of it can be pickled."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    # A process that only passes tasks on does not wait for this import.
    import pyarrow as pa

Stage = Literal["volumes", "preview", "listing", "content", "unallocated"]
STAGES: tuple[Stage, ...] = ("volumes", "preview", "listing", "content", "unallocated")

ReadState = Literal["whole", "partial", "unreadable", "unread", "skipped"]


@dataclasses.dataclass(frozen=True)
class Volume:
    """A file system, or a partition without one. `start` and `length` are bytes in the image."""

    index: int
    start: int
    length: int
    fs: str
    """The Sleuth Kit's name for it ("ntfs", "ext4", "fat32", …), or "" if it is not recognised."""
    description: str
    sector_size: int = 512
    block_size: int = 0
    partitioned: bool = True
    """Whether a partition table locates it; `fls` then needs `-o`."""
    root_inode: int = 0
    inodes: int = 0
    """The highest metadata address, which approximates the number of files."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """One stream of one file to be read: the columns of a listing row that reading needs."""

    row: int
    """Its line in the bodyfile, from 0, which links a content row to its listing row."""
    volume: int
    address: str
    inode: int
    attr_type: int | None
    attr_id: int | None
    size: int
    path: str
    name: str
    extension: str
    deleted: bool
    allocated: bool

    @property
    def stream(self) -> tuple[int, ...]:
        """Returns the same value for all names of one stream (hard links)."""
        kind, number = (-1 if one is None else one for one in (self.attr_type, self.attr_id))
        return self.volume, self.inode, kind, number, self.deleted, self.allocated


@dataclasses.dataclass(frozen=True)
class Content:
    """The outcome of reading one Entry. Hashes are lower-case hex, or None if not computed."""

    row: int
    read_state: ReadState
    why: str | None = None
    """A sentence, for every state but "whole"."""
    md5: str | None = None
    sha1: str | None = None
    sha256: str | None = None
    type: str | None = None
    mime: str | None = None
    type_mismatch: bool = False
    known: bool = False
    wanted: str | None = None
    hits: int = 0
    bytes_read: int = 0


@dataclasses.dataclass(frozen=True)
class Finding:
    """A finding. `offset` is in bytes: in the image if `address` is None, otherwise in the file's stream."""

    score: int
    volume: int
    kind: str
    """"wanted-hash", "yara", "keyword", "name", "mismatch", "deleted" …"""
    rule: str
    detail: str
    address: str | None = None
    path: str | None = None
    offset: int | None = None
    excerpt: str | None = None


@dataclasses.dataclass(frozen=True)
class Problem:
    """Something missing from the result, and why: one sentence. Ranges are bytes in the image."""

    stage: str
    sentence: str
    volume: int = -1
    path: str | None = None
    offset: int | None = None
    length: int | None = None
    gap: bool = False
    """Whether files may be missing because of it, although no range of the image is."""

    @property
    def is_missing(self) -> bool:
        """Whether it is about something that could not be read, and not only a remark."""
        return self.gap or self.offset is not None or self.stage == "listing"


@dataclasses.dataclass(frozen=True)
class Task:
    """A unit of work, named after its content: two tasks with the same name have the same result.

    `what` depends on the stage, and has a JSON form:

    * "volumes": `[sector size in bytes, 0 if unknown]`; if keys were given, also the places of the volumes that they opened,
      as `[start, length, description]` in bytes, and sentences about what they did not open; if there are arrays or logical
      volumes, also their places, each with whether another volume is read from it, and the size of the source in bytes; if there are
      shadow copies that are not among these, also a sentence about each;
    * "preview": see `listing.mft_preview`;
    * "listing": see `listing.walk`;
    * "content": the entries to read, as a list of `Entry`s (`entries()` gives them back);
    * "unallocated": `[start, length]`, bytes in the image. `volume` is -1 outside all volumes.
    """

    stage: Stage
    volume: int
    what: tuple[Any, ...]
    ranges: tuple[tuple[int, int], ...] = dataclasses.field(default=(), compare=False)
    """Start and length of what it reads, as far as that is known: bytes in the image. It says where the task is best done, and is
    no part of its name."""

    @functools.cached_property
    def id(self) -> str:
        """Returns its name: a digest of stage, volume and `what`."""
        text = json.dumps([self.stage, self.volume, self.what], separators=(",", ":"), ensure_ascii=True)
        return hashlib.blake2b(text.encode("ascii"), digest_size=16).hexdigest()

    @classmethod
    def of_entries(cls, volume: int, entries: list[Entry], ranges: Iterable[tuple[int, int]] = ()) -> "Task":
        """Returns a task to analyse a batch of files, whose content lies in these ranges as far as is known."""
        return cls("content", volume, tuple(dataclasses.astuple(entry) for entry in entries), tuple(ranges))

    def entries(self) -> list[Entry]:
        """Returns the entries that a content task is to read."""
        return [Entry(*one) for one in self.what]


@dataclasses.dataclass(frozen=True)
class RowPlacement:
    """Where the rows of another task belong: within this task's start number `within`, before row `row`, stand those
    of start number `start` of `tasks[task]`."""

    within: int
    row: int
    task: int
    start: int


@dataclasses.dataclass(kw_only=True)
class Outcome:
    """The outcome of a task that a run remembers as it is."""

    tasks: list[Task] = dataclasses.field(default_factory=list)
    """Further tasks of the same stage."""
    places: list[RowPlacement] = dataclasses.field(default_factory=list)
    """In a listing: where the rows of further tasks belong, in order."""
    starts: list[int] = dataclasses.field(default_factory=list)
    """In a listing: the first row of each of the task's starts."""
    volumes: list[Volume] = dataclasses.field(default_factory=list)
    problems: list[Problem] = dataclasses.field(default_factory=list)
    directories: int = 0
    """In a listing: the number of directories listed."""
    bytes_read: int = 0
    """Bytes read of files or unallocated space, not bytes transferred over the link."""
    failed: bool = False
    """The task failed; it is tried again when the run resumes."""

    def outcome(self) -> dict[str, Any]:
        """Returns the fields that every outcome has."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(Outcome)}


@dataclasses.dataclass
class Result(Outcome):
    """The outcome of a task with its tables, as a worker sends it."""

    rows: "pa.Table | None" = None
    """Listing rows (`schemas.LISTING`) or content rows (`schemas.CONTENT`), by the task's stage."""
    findings: list[Finding] = dataclasses.field(default_factory=list)
    gone: bool = False
    """The source did not answer for so long that the rest of the task was not tried."""


@dataclasses.dataclass
class CompletedTask(Outcome):
    """The outcome of a completed task, whose rows and findings are stored in parts, as a journal records it."""

    id: str
    stage: Stage
    rows: str | None = None
    """The digest of its rows, if it has any."""
    findings: str | None = None
    row_count: int = 0
    finding_count: int = 0
    unreadable: bool = False
    """Something could not be read: worth another try when the run resumes."""


def rows_of(task_id: str) -> str:
    """Returns the name of the part with a task's rows."""
    return f"{task_id}.rows"


def findings_of(task_id: str) -> str:
    """Returns the name of the part with a task's findings."""
    return f"{task_id}.findings"


@dataclasses.dataclass(frozen=True)
class Event:
    """A progress event, sent several times a second at most. `total` is a lower bound that grows."""

    stage: str
    """A stage, or "lists", "ranking", "atoms", "merging", "report", "done"."""
    done: int
    total: int
    bytes: int = 0
    findings: int = 0
    latest: tuple[Finding, ...] = ()
    """The most important findings so far, at most ten, best first."""
    doubts: tuple[str, ...] = ()
    """What is in doubt about the source, as far as it is known, a sentence each."""
    unit: str = "files"
    elapsed_s: float = 0.0
