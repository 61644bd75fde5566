"""An open source as a file object."""

import io
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, overload

from cheetah import _native
from cheetah.open_options import (
    KeyFiles,
    Names,
    Sources,
    absolute_source,
    absolute_sources,
    key_files,
    open_options,
    parsed,
    parsed_logical,
    several,
)
from cheetah.rule_search import RuleHits
from cheetah.search import Hits, Wanted, listed, paths_of

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# The largest read without a length. More is a mistake: a disk does not belong in memory.
READ_ALL_BYTES_MAX = 1 << 30

# The largest native read into a buffer, so that no read needs twice its memory.
PIECE_BYTES = 16 << 20


# Large enough that a task is worth its start, and small enough that each worker gets some.
PART_BYTES = 64 << 20


@dataclass(frozen=True)
class Part:
    """A part of a source: `offset` and `length` in bytes, and the `hosts` that hold bytes of it."""

    offset: int
    length: int
    hosts: tuple[str, ...]


class Device(io.RawIOBase):
    """An open source: a read-only file with random access, for any number of threads.

    `name` is the source's name, `size` its size in bytes, `sector_size` that of its sectors, or None if unknown, `source`
    the path or URI that was opened, `lost` sentences about parts that are lost.

    `unlocked` says what the keys did, and is None if none were given. Its `opened` has a dictionary for each encrypted
    volume that is open, with `partition` (missing if it is none), `inside` (the volume that it is, or whose partition, as `logical`
    labels it; missing in the source itself), `offset` and `size_bytes` of its content, `format` and `protector`, and `locked` one for
    each that is not, with `partition`, `inside`, `format` and `why`. The content of
    open volumes is read decrypted, each sector where it lies encrypted. `locked` has sentences about those that are not open.

    `logical` names the arrays of Linux's software RAID, the logical volumes of LVM2, and the partitions in these and in opened volumes.
    Its `volumes` has a dictionary for each that can be read, with `kind` (`md`, `lvm2`, `vss` or `partition`), `group` (of a logical volume),
    `name`, `id`, `label` (its name as a file of a mount), `description`, `offset`, `size_bytes` and `is_used` (if another volume is
    read from it), and `not_opened` sentences about the others. One that lies in one piece is read where
    it lies; the others lie behind `size`, where only `pread` reaches. If its NTFS volumes have shadow copies, `shadow_copies` has a
    dictionary for each, with `label`, `description`, `created` (RFC 3339), `id`, `store_id`, `machine`, `size_bytes`, `is_shown` (whether it
    is among `volumes`) and `why_not` (if it cannot be opened).

    `pread` takes its own offset, so threads can call it at once. `read` and `readinto` use the position that `seek`
    sets, which all threads share. They return all the bytes asked for, and fewer only at the end. A range that cannot
    be read raises OSError with an errno (EIO) and leaves the position unchanged; it never yields zeros or part of the
    data.

    A pickled device stores the source's name and the arguments of `open`; unpickling opens the source again.
    """

    def __init__(self, source: str, opened: _native.Device, reopen: Callable[..., "Device"], settings: tuple[Any, ...]):
        super().__init__()
        self.source = source
        self.name = opened.name
        self.size = opened.size
        self.sector_size = opened.sector_size
        self.lost = opened.lost
        self.unlocked = parsed(opened.unlocked)
        self.locked = opened.locked
        self.logical = parsed_logical(opened.logical)
        self.mode = "rb"
        self._native = opened
        self._position = 0
        # Held while reading: each thread's read begins where the previous one ended.
        self._moving = threading.RLock()
        self._again = reopen, settings
        self._doubts: list[str] | None = None

    def pread(self, offset: int, length: int) -> bytes:
        """Returns `length` bytes from `offset`, fewer only at the end. Does not move the position. Reads logical volumes that lie
        behind the end, too: see `logical`."""
        self._must_be_open()
        if offset < 0 or length < 0:
            raise ValueError(f"cannot read {length} bytes at {offset}: neither may be negative")
        end = self._native.end
        if offset < self.size:
            length = min(length, self.size - offset)
        return self._native.pread(min(offset, end), min(length, end))

    def read(self, size: int | None = -1, /) -> bytes:
        """Returns the next `size` bytes, fewer only at the end; without a size, the rest, up to 1 GiB."""
        if size is None or size < 0:
            return self.readall()
        with self._moving:
            found = self.pread(self._position, size)
            self._position += len(found)
        return found

    def readall(self) -> bytes:
        """Returns the rest, up to 1 GiB."""
        with self._moving:
            rest = max(self.size - self._position, 0)
            if rest > READ_ALL_BYTES_MAX:
                raise ValueError(f"{self.name}: {rest} bytes are too many to read at once; read them in pieces")
            return self.read(rest)

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        """Fills the buffer with the next bytes; returns the number of bytes read."""
        self._must_be_open()
        with memoryview(buffer) as whole, whole.cast("B") as view, self._moving:
            if view.readonly:
                raise TypeError(f"{type(buffer).__name__} is read-only and cannot be read into")
            length = min(len(view), max(self.size - self._position, 0))
            for start in range(0, length, PIECE_BYTES):
                with view[start : min(start + PIECE_BYTES, length)] as piece:
                    self._native.pread_into(self._position + start, piece)
            self._position += length
        return length

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Sets the position, which may lie beyond the end."""
        self._must_be_open()
        with self._moving:
            start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}.get(whence)
            if start is None:
                raise ValueError(f"whence is {whence}; it must be 0 (start), 1 (position) or 2 (end)")
            if start + offset < 0:
                raise ValueError(f"position {start + offset} is before the start")
            self._position = start + offset
            return self._position

    def tell(self) -> int:
        """Returns the position."""
        self._must_be_open()
        return self._position

    def get_size(self) -> int:
        """Returns the size in bytes, for libraries that expect this method."""
        return self.size

    def connections(self) -> list[str]:
        """Returns how the connections to its servers are protected, a sentence for each server that answers; none for a
        file or disk of this machine. The nodes of a drive are asked now."""
        self._must_be_open()
        return self._native.connections()

    @property
    def doubts(self) -> list[str]:
        """Sentences about what is in doubt although all of the source can be read: a partition table or a file system that
        reaches beyond its end, say. Of a source behind a link, the first use reads its tables, for at most `timeout_s`."""
        if self._doubts is None:
            self._must_be_open()
            self._doubts = self._native.doubts()
        return self._doubts

    def parts(self, part_bytes: int = PART_BYTES) -> list[Part]:
        """Divides the source into parts of `part_bytes`. Of a drive, each has the hosts that hold bytes of it, as the drive file
        names them, those with the most first. So a scheduler can place work where the bytes lie."""
        self._must_be_open()
        return [Part(offset, length, tuple(hosts)) for offset, length, hosts in self._native.parts(part_bytes)]

    @overload
    def search(
        self,
        words: str | os.PathLike[str] | Iterable[str] = (),
        *,
        regexes: Iterable[str] = (),
        kinds: Iterable[str] = (),
        inside: Iterable[str] = (),
        known: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
        blocks: str | os.PathLike[str] | None = None,
        encodings: Iterable[str] = ("utf-8", "utf-16le"),
        ignore_case: bool = False,
        context_bytes: int = 32,
        at_nodes: bool = False,
        lend_key: str | Iterable[str] = (),
        workers: int | None = None,
    ) -> Hits: ...

    @overload
    def search(
        self,
        words: str | os.PathLike[str] | Iterable[str] = (),
        *,
        yara: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        regexes: Iterable[str] = (),
        kinds: Iterable[str] = (),
        inside: Iterable[str] = (),
        known: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
        blocks: str | os.PathLike[str] | None = None,
        encodings: Iterable[str] = ("utf-8", "utf-16le"),
        ignore_case: bool = False,
        context_bytes: int = 32,
        at_nodes: bool = False,
        lend_key: str | Iterable[str] = (),
        workers: int | None = None,
    ) -> RuleHits: ...

    def search(
        self,
        words: str | os.PathLike[str] | Iterable[str] = (),
        *,
        regexes: Iterable[str] = (),
        kinds: Iterable[str] = (),
        inside: Iterable[str] = (),
        known: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
        blocks: str | os.PathLike[str] | None = None,
        yara: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
        encodings: Iterable[str] = ("utf-8", "utf-16le"),
        ignore_case: bool = False,
        context_bytes: int = 32,
        at_nodes: bool = False,
        lend_key: str | Iterable[str] = (),
        workers: int | None = None,
    ) -> Hits | RuleHits:
        """Searches the source, and returns an iterator of hits, as `cheetah search` finds them: docs/guide/search.md.

        `words` is a file with a word in each line, or the words. `regexes` are regular expressions over bytes, `kinds` well-known
        kinds of data, such as "email". `context_bytes` is the number of bytes before and after each hit in its `context`.
        `inside` names kinds of compressed data whose content is searched as well, once the source is: "gzip", "zip" and "pdf". `known`
        are known files, or folders of them, whose blocks are searched for: `Hits.known` says what was found of them. `blocks` is
        a set of known files that `cheetah search` stored, and takes the place of `known`.
        `yara` are files of YARA rules, which are tried on the content of files once the source is searched: the result is a `RuleHits`
        then, which yields the matches of the rules last, and whose `coverage` says on which files these were tried. That needs yara-x,
        pytsk3, pyarrow and numpy.
        With `at_nodes`, the nodes of a drive that lend their processor search what they hold; `lend_key` names those that are lent the
        key of a sealed drive for that, or is "all". `workers` parts are searched at once
        by this process: by default as many as it has processors.

        Ranges that cannot be read are skipped: `Hits.coverage` lists them. Raises `cheetah.Error` for patterns that cannot be
        searched, and if the source fails as a whole.
        """
        self._must_be_open()
        if at_nodes and self.unlocked is not None:
            raise ValueError("nodes hold what is on the disk, and cannot search opened volumes: leave out at_nodes")
        nodes = [lend_key] if isinstance(lend_key, str) else list(lend_key)
        if nodes and not at_nodes:
            raise ValueError("lend_key: nodes are lent the key to search; set at_nodes")
        rules, known = paths_of(yara), paths_of(known)
        if blocks is not None and known:
            raise ValueError("blocks and known: known files are given once; leave one out")
        wanted = Wanted(
            words=listed(words),
            regexes=list(regexes),
            kinds=list(kinds),
            inside=list(inside),
            known=known,
            blocks=None if blocks is None else os.fspath(blocks),
            encodings=list(encodings),
            ignore_case=ignore_case,
            context_bytes=context_bytes,
        )

        def begin(wanted: Wanted) -> _native.Hits:
            return self._native.search(self.source, wanted, at_nodes, nodes, workers)

        return RuleHits(self, rules, wanted, begin) if rules else Hits(begin(wanted), self.size)

    def readable(self) -> bool:
        """Returns True."""
        self._must_be_open()
        return True

    def seekable(self) -> bool:
        """Returns True."""
        self._must_be_open()
        return True

    def write(self, _data: object, /) -> NoReturn:
        """Raises UnsupportedOperation."""
        raise io.UnsupportedOperation(f"{self.name} is evidence and read-only")

    def close(self) -> None:
        """Closes the source. Reads in progress in other threads complete."""
        if not self.closed:
            super().close()
            # Absent if opening failed.
            if native := self.__dict__.get("_native"):
                native.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return self._again

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.size} bytes"
        return f"<cheetah.Device {self.source!r}, {state}>"

    def _must_be_open(self) -> None:
        if self.closed:
            raise ValueError(f"{self.name} is closed")


def open(
    source: str | os.PathLike[str],
    *,
    cache: int | str | None = None,
    prefetch: int | None = None,
    timeout_s: float = 10,
    allow_lost: bool = False,
    unlock: KeyFiles = (),
    beside: Sources = (),
    shadow_copies: Names | None = None,
) -> Device:
    """Opens a source for reading: a drive file, an image in any format, a disk, or an NBD or iSCSI URI.

    `cache` is the size in bytes of a memory cache for a source behind a link, or, as on the command line,
    "memory:SIZE" or "DIRECTORY:SIZE"; by default nothing is cached. `prefetch` is the memory for read-ahead over a
    link in bytes: 64 MiB by default, 0 to disable it. A node or server that does not answer for `timeout_s` seconds
    counts as lost. `allow_lost` opens a drive although nodes are lost; `Device.lost` lists the ranges that cannot be
    read.

    `unlock` names key files, whose keys are tried on encrypted volumes, as `--unlock` of the command line:
    docs/guide/unlock.md describes them. `Device.unlocked` says what they opened. A pickled device has the names of these
    files, and not their content. `beside` names other sources that have parts of the same arrays and volume groups, as `--with`
    of the command line. `shadow_copies` names shadow copies of NTFS volumes that become volumes, as `p2.vss1`; "all" means all of
    them. `Device.logical` lists them: of a drive and of a source behind a link, only if they are asked for, if only by `()`.

    Raises `cheetah.Error` if the source cannot be opened.
    """
    source, keys, others = absolute_source(source), key_files(unlock), absolute_sources(beside)
    copies = several(shadow_copies)
    options = open_options(
        source,
        cache=cache,
        prefetch=prefetch,
        timeout_s=timeout_s,
        allow_lost=allow_lost,
        unlock=keys,
        beside=others,
        shadow_copies=copies,
    )
    opened = _native.Device(source, options)
    return Device(source, opened, _open_again, (source, cache, prefetch, timeout_s, allow_lost, keys, others, copies))


def _open_again(
    source: str,
    cache: int | str | None,
    prefetch: int | None,
    timeout_s: float,
    allow_lost: bool,
    unlock: tuple[str, ...],
    beside: tuple[str, ...],
    shadow_copies: tuple[str, ...] | None,
) -> Device:
    """Opens the source of a pickled device."""
    return open(
        source,
        cache=cache,
        prefetch=prefetch,
        timeout_s=timeout_s,
        allow_lost=allow_lost,
        unlock=unlock,
        beside=beside,
        shadow_copies=shadow_copies,
    )
