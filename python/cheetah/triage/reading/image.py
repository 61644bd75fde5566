"""A source as The Sleuth Kit reads it through pytsk3.

For a kilobyte, The Sleuth Kit reads and caches 64 KiB. Over a link most of that is wasted: a directory's block is 4
KiB, and files follow it. But if such a read-ahead returns nothing, The Sleuth Kit asks again for exactly the bytes it
needs. So for a remote source, read-aheads are answered with nothing, and the reads that follow are cached in pages,
with a read-ahead window that grows only for sequential readers.
"""

import contextlib
import errno
import time
from collections.abc import Callable
from typing import Protocol

import pytsk3

AHEAD_BYTES = 64 << 10
"""The size of The Sleuth Kit's read-ahead, which is aligned to sectors. A longer read asks for exactly what is
needed."""
SECTOR_BYTES = 512
PAGE_BYTES = 4096
_PAGE_SHIFT = 12
PAGES_MAX = 8192
"""The size of the page cache: 32 MiB."""
WINDOW_PAGES_MAX = 64
STREAMS_MAX = 32
UNREADABLE_MAX = 1000
GONE_S = 30.0
"""If no read has succeeded for this long, the other reads of a task fail at once; each would take the whole
time-out."""
GONE = f"the source has not answered for {GONE_S:.0f} s"
"""Why these reads fail: the source was not asked."""


class Source(Protocol):
    """The interface of an open source; `cheetah.Device` has it."""

    name: str
    size: int

    def pread(self, offset: int, length: int) -> bytes:
        """Returns bytes at an offset, fewer only at the end. Raises OSError if they cannot be read."""

    def close(self) -> None:
        """Closes the source."""


class TskImage(pytsk3.Img_Info):
    """The source for pytsk3. The Sleuth Kit cannot report unreadable ranges, so they are noted here.

    `beat` is called at each read. A `near` source is on this machine, so its read-aheads are answered.
    """

    def __init__(
        self,
        source: Source,
        sector_size: int = SECTOR_BYTES,
        beat: Callable[[], None] = lambda: None,
        near: bool = False,
    ):
        self._source = source
        self._beat = beat
        self._near = near
        self._ahead = -1
        self._pages: dict[int, bytes] = {}
        self._streams: dict[int, int] = {}
        self._corrections: dict[int, bytes] = {}
        self._failing_since_s: float | None = None
        self.gone = False
        """Whether the source did not answer for `GONE_S`, so that some reads were not tried."""
        self.unreadable: list[tuple[int, int, str]] = []
        """Offset and length in bytes, and why; the first `UNREADABLE_MAX`."""
        super().__init__(url="", sector_size=sector_size)

    def get_size(self) -> int:
        """Returns the size in bytes."""
        return self._source.size

    def read(self, offset: int, length: int) -> bytes:
        """Called by The Sleuth Kit. A failed read is noted and returns nothing: an exception raised here would surface
        in a later read."""
        content = self._content(offset, length)
        return self._corrected(offset, content) if self._corrections else content

    def correct(self, offset: int, content: bytes) -> None:
        """Lets The Sleuth Kit see `content` at an offset, where the source has bytes that it does not understand. `pread`
        returns the source's own."""
        self._corrections[offset] = content

    def is_corrected(self, offset: int, length: int) -> bool:
        """Returns whether The Sleuth Kit sees other bytes than the source's in a range."""
        return any(place < offset + length and offset < place + len(one) for place, one in self._corrections.items())

    def _corrected(self, offset: int, content: bytes) -> bytes:
        whole = bytearray(content)
        for place, right in self._corrections.items():
            first, end = max(place, offset), min(place + len(right), offset + len(whole))
            if first < end:
                whole[first - offset : end - offset] = right[first - place : end - place]
        return bytes(whole)

    def _content(self, offset: int, length: int) -> bytes:
        if length <= AHEAD_BYTES and offset % SECTOR_BYTES == 0 and offset != self._ahead:
            return self._read_ahead(offset, length)
        self._ahead = -1
        first, start = offset >> _PAGE_SHIFT, offset & (PAGE_BYTES - 1)
        page = self._pages.get(first)
        if page is not None and start + length <= len(page):
            return page[start : start + length]
        self._beat()
        if length > AHEAD_BYTES:
            return self._exactly(offset, length)
        return self._paged(offset, length)

    def begin(self) -> None:
        """Begins a task: failed reads are tried again."""
        self.unreadable = []
        self._failing_since_s = None
        self.gone = False

    def take_unreadable(self) -> list[tuple[int, int, str]]:
        """Returns the ranges that could not be read since the last call."""
        taken, self.unreadable = self.unreadable, []
        return taken

    def close(self) -> None:
        """Does nothing: the opener closes the source."""

    def _read_ahead(self, offset: int, length: int) -> bytes:
        """Returns the bytes at `offset` if the source is near; otherwise nothing, so that the needed read follows."""
        if self._near:
            with contextlib.suppress(OSError):
                self._beat()
                return self.pread(offset, length)
        self._ahead = offset
        return b""

    def _exactly(self, offset: int, length: int) -> bytes:
        """Returns exactly these bytes, or nothing and notes it."""
        try:
            return self.pread_noted(offset, length)
        except OSError:
            return b""

    def _paged(self, offset: int, length: int) -> bytes:
        """Returns these bytes from cached pages, reading the missing ones."""
        if len(self._pages) > PAGES_MAX:
            for old in list(self._pages)[: PAGES_MAX // 4]:
                del self._pages[old]
        first, last = offset >> _PAGE_SHIFT, (offset + length - 1) >> _PAGE_SHIFT
        number = first
        while number <= last:
            if number in self._pages:
                number += 1
                continue
            try:
                number = self._fetch(number, last)
            except OSError:
                # An unreadable neighbour may be the cause.
                return self._exactly(offset, length)
        content = b"".join(self._pages[number] for number in range(first, last + 1))
        start = offset & (PAGE_BYTES - 1)
        return content[start : start + length]

    def _fetch(self, number: int, last: int) -> int:
        """Reads pages from `number` to at least `last`, more for a sequential reader; returns the page after them."""
        window = min(2 * self._streams.pop(number, 0), WINDOW_PAGES_MAX)
        count = max(last - number + 1, window)
        content = self.pread(number << _PAGE_SHIFT, count << _PAGE_SHIFT)
        for place in range(count):
            self._pages[number + place] = content[place << _PAGE_SHIFT : (place + 1) << _PAGE_SHIFT]
        self._streams[number + count] = count
        if len(self._streams) > STREAMS_MAX:
            del self._streams[next(iter(self._streams))]
        return number + count

    def pread_noted(self, offset: int, length: int) -> bytes:
        """As `pread`. A failed read is noted as well, as one of The Sleuth Kit is."""
        try:
            return self.pread(offset, length)
        except OSError as error:
            if len(self.unreadable) < UNREADABLE_MAX:
                self.unreadable.append((offset, length, error.strerror or str(error)))
            raise

    def pread(self, offset: int, length: int) -> bytes:
        """Reads from the source, unless it has not answered for `GONE_S`."""
        if self._failing_since_s is not None and time.monotonic() - self._failing_since_s > GONE_S:
            self.gone = True
            raise OSError(errno.EIO, GONE)
        try:
            content = self._source.pread(offset, length)
        except OSError:
            self._failing_since_s = self._failing_since_s or time.monotonic()
            raise
        self._failing_since_s = None
        return content
