"""The vocabulary between the hub and its workers: tasks, results, and what is in them. All of it pickles."""

import dataclasses
import functools
import hashlib
import json
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    # Whoever only hands tasks on need not wait for it to be imported.
    import pyarrow as pa

Stage = Literal["volumes", "glimpse", "listing", "content", "unallocated"]
STAGES: tuple[Stage, ...] = ("volumes", "glimpse", "listing", "content", "unallocated")

ReadState = Literal["whole", "partial", "unreadable", "unread", "skipped"]


@dataclasses.dataclass(frozen=True)
class Volume:
    """A file system, or what stands where one could be. `start` and `length` are bytes in the image."""

    index: int
    start: int
    length: int
    fs: str
    """The Sleuth Kit's name for it ("ntfs", "ext4", "fat32", …), or "" where it is not understood."""
    description: str
    sector_size: int = 512
    block_size: int = 0
    partitioned: bool = True
    """Whether a partition table says where it is; a listing by hand then needs `-o`."""
    root_inode: int = 0
    inodes: int = 0
    """The highest address of metadata, which is about how many files there can be."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """One stream of one file, for whoever reads its content: a row of the listing, cut down to what reading takes."""

    row: int
    """Its line in the bodyfile, from 0: what ties a content row to its listing row."""
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
        """What two entries have in common that are names of the same stream (hard links)."""
        kind, number = (-1 if one is None else one for one in (self.attr_type, self.attr_id))
        return self.volume, self.inode, kind, number, self.deleted, self.allocated


@dataclasses.dataclass(frozen=True)
class Content:
    """What became of one Entry. Hashes are lower-case hex, None where they were not made."""

    row: int
    read_state: ReadState
    why: str | None = None
    """For all states but "whole": one sentence."""
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
    """Something to look at. `offset` is in bytes: in the image where `address` is None, else in the file's stream."""

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
    """Something that is missing from the result, and why: one sentence. Ranges are bytes in the image."""

    stage: str
    sentence: str
    volume: int = -1
    path: str | None = None
    offset: int | None = None
    length: int | None = None


@dataclasses.dataclass(frozen=True)
class Task:
    """A piece of work, named by what it is: two tasks with the same name have the same result.

    `what` depends on the stage, and is made of what JSON can hold:

    * "volumes": empty;
    * "glimpse": see `glimpse`;
    * "listing": see `walk`;
    * "content": the entries to read, as a list of `Entry`s (`entries()` gives them back);
    * "unallocated": `[start, length]`, bytes in the image. `volume` is -1 outside all volumes.
    """

    stage: Stage
    volume: int
    what: tuple[Any, ...]

    @functools.cached_property
    def id(self) -> str:
        """Its name: a digest of stage, volume and what."""
        text = json.dumps([self.stage, self.volume, self.what], separators=(",", ":"), ensure_ascii=True)
        return hashlib.blake2b(text.encode("ascii"), digest_size=16).hexdigest()

    @classmethod
    def of_entries(cls, volume: int, entries: list[Entry]) -> "Task":
        """The content of a batch of files."""
        return cls("content", volume, tuple(dataclasses.astuple(entry) for entry in entries))

    def entries(self) -> list[Entry]:
        """What a content task is to read."""
        return [Entry(*one) for one in self.what]


@dataclasses.dataclass(frozen=True)
class Place:
    """Where rows that were left to another task belong: within this task's start number `within`, before row `row`,
    come those of start number `start` of `tasks[task]`."""

    within: int
    row: int
    task: int
    start: int


@dataclasses.dataclass
class Result:
    """What a task brought: tables for the store, more tasks, and what went wrong."""

    rows: "pa.Table | None" = None
    """Listing rows (`store.LISTING`) or content rows (`store.CONTENT`), by the task's stage."""
    findings: list[Finding] = dataclasses.field(default_factory=list)
    tasks: list[Task] = dataclasses.field(default_factory=list)
    """What is left to do, of the same stage."""
    places: list[Place] = dataclasses.field(default_factory=list)
    """Of a listing: where what is left belongs, in order."""
    starts: list[int] = dataclasses.field(default_factory=list)
    """Of a listing: the first row of each of the task's starts."""
    volumes: list[Volume] = dataclasses.field(default_factory=list)
    problems: list[Problem] = dataclasses.field(default_factory=list)
    directories: int = 0
    """Of a listing: how many were listed."""
    bytes_read: int = 0
    """Bytes of files or of unallocated space that were read, not what crossed the link for them."""
    failed: bool = False
    """Nothing came of it; it will be tried again when the run goes on."""
    gone: bool = False
    """The source answered nothing for so long that the rest was not tried."""


@dataclasses.dataclass(frozen=True)
class Event:
    """What `progress` hears, several times a second at most. `total` is what is known so far, and grows."""

    stage: str
    """A stage, or "lists", "ranking", "merging", "report", "done"."""
    done: int
    total: int
    bytes: int = 0
    findings: int = 0
    latest: tuple[Finding, ...] = ()
    """The most important findings so far, at most ten, best first."""
    unit: str = "files"
    elapsed_s: float = 0.0
