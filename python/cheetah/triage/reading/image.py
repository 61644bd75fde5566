"""A source as The Sleuth Kit reads it through pytsk3.

The Sleuth Kit reads 64 KiB from wherever it wants a kilobyte, and keeps them. Over a link that is most of what
crosses it: a directory's block is 4 KiB, and what follows it is files. Now, where such a read ahead brings nothing at
all, The Sleuth Kit asks again, and then for what it wants and no more. So, over a link, reads ahead are answered with
nothing here, and what is wanted is kept in pages, which grow into a read-ahead only where somebody reads on.
"""

import contextlib
import errno
import time
from collections.abc import Callable
from typing import Protocol

import pytsk3

AHEAD_BYTES = 64 << 10
"""What The Sleuth Kit reads ahead: never more, always from the beginning of a sector. A longer read is for what is
wanted."""
SECTOR_BYTES = 512
PAGE_BYTES = 4096
_PAGE_SHIFT = 12
PAGES_MAX = 8192
"""What is kept: 32 MiB."""
WINDOW_PAGES_MAX = 64
STREAMS_MAX = 32
UNREADABLE_MAX = 1000
GONE_S = 30.0
"""When no read has succeeded for so long, the rest of a task's reads fail at once: each would take the whole
time-out."""
GONE = f"the source has answered nothing for {GONE_S:.0f} s"
"""Why they fail: nobody asked the source."""


class Source(Protocol):
    """What is needed of an open source; `cheetah.Device` is one."""

    name: str
    size: int

    def pread(self, offset: int, length: int) -> bytes:
        """Bytes at an offset; fewer only at the end. What cannot be read is an OSError."""

    def close(self) -> None:
        """Gives it back."""


class Image(pytsk3.Img_Info):
    """The source. The Sleuth Kit has no words for "unreadable", so what could not be read is noted here as well.

    `beat` is called at each read. A source that is `near` is on this machine: reads ahead are welcome.
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
        self._failing_since_s: float | None = None
        self.gone = False
        """Whether the source answered nothing for `GONE_S`, so that it was not asked for all."""
        self.unreadable: list[tuple[int, int, str]] = []
        """Offset and length in bytes, and why; the first `UNREADABLE_MAX`."""
        super().__init__(url="", sector_size=sector_size)

    def get_size(self) -> int:
        """Bytes."""
        return self._source.size

    def read(self, offset: int, length: int) -> bytes:
        """Called by The Sleuth Kit. What cannot be read is noted, and nothing is returned: an exception in here would
        outlast the read it is about."""
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
        """The beginning of a task: what could not be read before is worth another try."""
        self.unreadable = []
        self._failing_since_s = None
        self.gone = False

    def take_unreadable(self) -> list[tuple[int, int, str]]:
        """What could not be read since it was last asked."""
        taken, self.unreadable = self.unreadable, []
        return taken

    def close(self) -> None:
        """The source is closed by who opened it."""

    def _read_ahead(self, offset: int, length: int) -> bytes:
        """What is behind `offset`, where that costs nothing; or nothing, and then comes a read for what is wanted."""
        if self._near:
            with contextlib.suppress(OSError):
                self._beat()
                return self.pread(offset, length)
        self._ahead = offset
        return b""

    def _exactly(self, offset: int, length: int) -> bytes:
        """These bytes, or nothing and a note."""
        try:
            return self.pread(offset, length)
        except OSError as error:
            if len(self.unreadable) < UNREADABLE_MAX:
                self.unreadable.append((offset, length, error.strerror or str(error)))
            return b""

    def _paged(self, offset: int, length: int) -> bytes:
        """These bytes out of pages, of which those that are missing are read, and kept."""
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
                # Something near it may be what cannot be read.
                return self._exactly(offset, length)
        content = b"".join(self._pages[number] for number in range(first, last + 1))
        start = offset & (PAGE_BYTES - 1)
        return content[start : start + length]

    def _fetch(self, number: int, last: int) -> int:
        """Reads pages from this one on, to `last` at least, and more where others were read just before it; the page
        after them."""
        window = min(2 * self._streams.pop(number, 0), WINDOW_PAGES_MAX)
        count = max(last - number + 1, window)
        content = self.pread(number << _PAGE_SHIFT, count << _PAGE_SHIFT)
        for place in range(count):
            self._pages[number + place] = content[place << _PAGE_SHIFT : (place + 1) << _PAGE_SHIFT]
        self._streams[number + count] = count
        if len(self._streams) > STREAMS_MAX:
            del self._streams[next(iter(self._streams))]
        return number + count

    def pread(self, offset: int, length: int) -> bytes:
        """As the source itself, but for how long it may answer nothing."""
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
