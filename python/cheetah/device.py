"""An open source as a file object."""

import io
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from cheetah import _native
from cheetah.how import how, settled

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

#: The most that is read without a length: more than this is a mistake, since nobody wants a disk in memory.
READ_ALL_BYTES_MAX = 1 << 30

#: The most that is read into a buffer at once, so that no read takes twice its memory.
PIECE_BYTES = 16 << 20


class Device(io.RawIOBase):
    """An open source: a file that can be read, from anywhere, by any number of threads.

    `name` is what it is called, `size` its bytes, `source` what was opened, `lost` sentences about what is lost of it.

    `pread` is for threads: it has its offset with it. `read` and `readinto` go by the position that `seek` sets, and
    all threads share it. They give all that was asked for, and less only at the end. A range that cannot be read is an
    OSError with an errno (EIO), and the position stays where it was: never zeros, never a part without a word.

    A pickled device is its source's name, and how it was opened: whoever unpickles it opens it again.
    """

    def __init__(self, source: str, opened: _native.Device, reopen: Callable[..., "Device"], settings: tuple[Any, ...]):
        super().__init__()
        self.source = source
        self.name = opened.name
        self.size = opened.size
        self.lost = opened.lost
        self.mode = "rb"
        self._native = opened
        self._position = 0
        # Held while reading: what a thread reads begins where the one before it ended.
        self._moving = threading.RLock()
        self._again = reopen, settings

    def pread(self, offset: int, length: int) -> bytes:
        """`length` bytes from `offset`; fewer only at the end. Leaves the position alone."""
        self._must_be_open()
        if offset < 0 or length < 0:
            raise ValueError(f"there is nothing to read at {offset}, {length} bytes: neither can be negative")
        return self._native.pread(min(offset, self.size), min(length, self.size))

    def read(self, size: int | None = -1, /) -> bytes:
        """The next `size` bytes; fewer only at the end. All the rest, up to a GiB, without a size."""
        if size is None or size < 0:
            return self.readall()
        with self._moving:
            found = self.pread(self._position, size)
            self._position += len(found)
        return found

    def readall(self) -> bytes:
        """The rest, if it is no more than a GiB."""
        with self._moving:
            rest = max(self.size - self._position, 0)
            if rest > READ_ALL_BYTES_MAX:
                raise ValueError(f"{self.name}: {rest} bytes at once would be all in memory; read it in pieces")
            return self.read(rest)

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        """Fills the buffer with the next bytes; says how many there were until the end."""
        self._must_be_open()
        with memoryview(buffer) as whole, whole.cast("B") as view, self._moving:
            if view.readonly:
                raise TypeError(f"{type(buffer).__name__} cannot be read into, since it cannot be changed")
            length = min(len(view), max(self.size - self._position, 0))
            for start in range(0, length, PIECE_BYTES):
                with view[start : min(start + PIECE_BYTES, length)] as piece:
                    self._native.pread_into(self._position + start, piece)
            self._position += length
        return length

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Sets the position, which may be beyond the end; there is nothing to read there."""
        self._must_be_open()
        with self._moving:
            start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}.get(whence)
            if start is None:
                raise ValueError(f"whence is {whence}; it can be 0 (start), 1 (position) or 2 (end)")
            if start + offset < 0:
                raise ValueError(f"there is no position {start + offset}")
            self._position = start + offset
            return self._position

    def tell(self) -> int:
        """The position."""
        self._must_be_open()
        return self._position

    def get_size(self) -> int:
        """Bytes in it, in the words of libraries that want them from a method."""
        return self.size

    def readable(self) -> bool:
        """It can be read."""
        self._must_be_open()
        return True

    def seekable(self) -> bool:
        """It can be read anywhere."""
        self._must_be_open()
        return True

    def write(self, _data: object, /) -> NoReturn:
        """Refused."""
        raise io.UnsupportedOperation(f"{self.name} is evidence and only ever read")

    def close(self) -> None:
        """Lets go of the source. Reads under way in other threads go on to their end."""
        if not self.closed:
            super().close()
            # There is none where opening failed.
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
) -> Device:
    """Opens a source for reading: a drive file, an image in any format, a disk, or an NBD or iSCSI URI.

    `cache` is the memory, in bytes, for keeping what was read of a source at the other end of a link; or, as on the
    command line, "memory:SIZE" or "DIRECTORY:SIZE"; nothing is kept unless told. `prefetch` is the memory for reading
    ahead over a link, in bytes: 64 MiB unless told, 0 for none. A node or a server that is silent for longer than
    `timeout_s` seconds is lost. `allow_lost` opens a drive although nodes are lost; what they held is in
    `Device.lost`, and cannot be read.

    Raises `cheetah.Error` where it cannot be opened.
    """
    source = settled(source)
    opened = _native.Device(
        source, how(source, cache=cache, prefetch=prefetch, timeout_s=timeout_s, allow_lost=allow_lost)
    )
    return Device(source, opened, _open_again, (source, cache, prefetch, timeout_s, allow_lost))


def _open_again(
    source: str, cache: int | str | None, prefetch: int | None, timeout_s: float, allow_lost: bool
) -> Device:
    """What a pickled device is."""
    return open(source, cache=cache, prefetch=prefetch, timeout_s=timeout_s, allow_lost=allow_lost)
