"""The text of a list that a user made, whatever program wrote it.

A line ends with a line feed, a carriage return, both, or one of Unicode's other line ends: old Macs and spreadsheets
write carriage returns, word processors U+2028. A byte order mark gives the encoding: UTF-8, UTF-16 or UTF-32. Everything
arrives as UTF-8 with line feeds, so that a list does not silently become one line.
"""

import codecs
import io
import re
from typing import TYPE_CHECKING, BinaryIO

from cheetah.triage.search.fault import Kind, ListFault

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

PIECE_BYTES = 1 << 20
# UTF-32's mark begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF8, ""),
)
_ENDS = re.compile(rb"\r(?!\n)|[\x0b\x0c\x1c-\x1e]|\xc2\x85|\xe2\x80[\xa8\xa9]")
_BEGUN = re.compile(rb"(?:\r|\xc2|\xe2\x80?)\Z")
"""What may be the beginning of a line end."""


def mark(start: bytes) -> tuple[bytes, str]:
    """Returns the byte order mark with which a file starts, and the encoding to decode it from ("" for UTF-8)."""
    return next((one for one in _MARKS if start.startswith(one[0])), (b"", ""))


class _Plain(io.RawIOBase):
    """A file as UTF-8 with line feeds."""

    def __init__(self, path: str):
        super().__init__()
        self._path = path
        self._file: BinaryIO = open(path, "rb")
        found, encoding = mark(self._file.read(4))
        self._file.seek(len(found))
        self._decoder = codecs.getincrementaldecoder(encoding)() if encoding else None
        self._ready = b""
        self._begun = b""
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        with memoryview(buffer) as whole, whole.cast("B") as view:
            while not self._ready and not self._ended:
                self._next()
            piece, self._ready = self._ready[: len(view)], self._ready[len(view) :]
            view[: len(piece)] = piece
        return len(piece)

    def _next(self) -> None:
        piece = self._file.read(PIECE_BYTES)
        self._ended = not piece
        if self._decoder is not None:
            try:
                piece = self._decoder.decode(piece, final=self._ended).encode("utf-8")
            except UnicodeError as error:
                sentence = f"its byte order mark is wrong: {error}. Save it as UTF-8."
                raise ListFault(Kind.ENCODING, self._path, sentence) from error
        piece = self._begun + piece
        begun = None if self._ended else _BEGUN.search(piece)
        end = begun.start() if begun else len(piece)
        self._begun = piece[end:]
        self._ready = _ENDS.sub(b"\n", piece[:end])

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def open_list(path: str) -> io.BufferedReader:
    """Opens a list as a binary file of UTF-8 with line feeds. Reads raise ValueError if its byte order mark is wrong."""
    return io.BufferedReader(_Plain(path), PIECE_BYTES)
