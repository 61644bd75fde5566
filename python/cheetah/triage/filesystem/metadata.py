"""The bytes of a volume's metadata, where The Sleuth Kit does not return a field."""

from collections.abc import Callable

Read = Callable[[int, int], bytes]

PIECE_BYTES = 64 << 10
"""Metadata is read in pieces of this size, since the entries of a directory are near each other."""
_PIECES_MAX = 64


class Metadata:
    """The bytes of a volume at `start`, in pieces that are kept for a while."""

    def __init__(self, read: Read, start: int, size: int):
        self._read = read
        self._start = start
        self._size = size
        self._pieces: dict[int, bytes] = {}

    def bytes_at(self, offset: int, length: int) -> bytes:
        """Returns the bytes at an offset of the volume, fewer at the end of the image. Raises OSError if they cannot be
        read."""
        first = offset // PIECE_BYTES
        last = (offset + length - 1) // PIECE_BYTES
        whole = b"".join(self._piece(number) for number in range(first, last + 1))
        return whole[offset - first * PIECE_BYTES :][:length]

    def _piece(self, number: int) -> bytes:
        if number not in self._pieces:
            if len(self._pieces) == _PIECES_MAX:
                del self._pieces[next(iter(self._pieces))]
            at = self._start + number * PIECE_BYTES
            self._pieces[number] = self._read(at, max(0, min(PIECE_BYTES, self._size - at)))
        return self._pieces[number]
