"""A source that the program at the other end of two pipes reads, and the messages to it."""

import errno
import json
import os
import struct
from collections.abc import Callable
from typing import Any, BinaryIO

PIECE_BYTES = 4 << 20
"""The largest read that is asked for at once."""
_HEADER = struct.Struct("<BI")


class Pipe:
    """The source, and the messages: a value of JSON on each line.

    A read is a message; its answer is a byte, 0 for bytes and 1 for the reason why there are none, their length in 4 bytes, least
    significant first, and they themselves.
    """

    name = "the source"

    def __init__(self, answers: BinaryIO, messages: BinaryIO, size: int, sector_size: int | None):
        self._answers = answers
        self._messages = messages
        self.size = size
        self.sector_size = sector_size

    def say(self, **message: Any) -> None:
        """Sends a message."""
        line = json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"
        self._send(lambda: self._messages.write(line))

    def flush(self) -> None:
        """Sends what was kept back."""
        self._send(self._messages.flush)

    def _send(self, send: Callable[[], Any]) -> None:
        try:
            send()
        except OSError:
            # The program that asks is gone. To The Sleuth Kit, it would be a sector that cannot be read.
            os._exit(1)

    def pread(self, offset: int, length: int) -> bytes:
        """Returns bytes at an offset, fewer only at the end. Raises OSError if they cannot be read."""
        if offset < 0 or length < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        length = max(0, min(length, self.size - offset))
        places = range(offset, offset + length, PIECE_BYTES)
        return b"".join(self._piece(place, min(PIECE_BYTES, offset + length - place)) for place in places)

    def _piece(self, offset: int, length: int) -> bytes:
        self.say(read=[offset, length])
        self.flush()
        failed, size = _HEADER.unpack(self._exactly(_HEADER.size))
        content = self._exactly(size)
        if failed:
            raise OSError(errno.EIO, content.decode("utf-8", "replace"))
        if size != length:
            raise OSError(errno.EIO, f"{size} of {length} bytes came back")
        return content

    def _exactly(self, length: int) -> bytes:
        content = self._answers.read(length)
        if len(content) < length:
            # The program that asks is gone.
            os._exit(1)
        return content

    def close(self) -> None:
        """Does nothing: the other program opened the source."""
