"""The bytes of a volume's metadata, where The Sleuth Kit does not return a field."""

from collections.abc import Callable

from cheetah.triage.reading.image import TskImage

Read = Callable[[int, int], bytes]

PIECE_BYTES = 64 << 10
"""Metadata is read in pieces of this size, since the entries of a directory are near each other."""
_PIECES_MAX = 64


class Metadata:
    """The bytes of a volume at `start` of an image, in pieces that are kept for a while."""

    def __init__(self, image: TskImage, start: int):
        self._image = image
        self._start = start
        self._size = image.get_size()
        self._pieces: dict[int, bytes] = {}

    def bytes_at(self, offset: int, length: int) -> bytes:
        """Returns the bytes at an offset of the volume, fewer at the end of the image. Notes it and raises OSError if
        they cannot be read."""
        try:
            return self._of_pieces(offset, length)
        except OSError:
            # An unreadable neighbour may be the cause.
            return self._image.pread_noted(*self._within(self._start + offset, length))

    def _of_pieces(self, offset: int, length: int) -> bytes:
        first = offset // PIECE_BYTES
        last = (offset + length - 1) // PIECE_BYTES
        whole = b"".join(self._piece(number) for number in range(first, last + 1))
        return whole[offset - first * PIECE_BYTES :][:length]

    def _piece(self, number: int) -> bytes:
        if number not in self._pieces:
            if len(self._pieces) == _PIECES_MAX:
                del self._pieces[next(iter(self._pieces))]
            at = self._start + number * PIECE_BYTES
            self._pieces[number] = self._image.pread(*self._within(at, PIECE_BYTES))
        return self._pieces[number]

    def _within(self, at: int, length: int) -> tuple[int, int]:
        """Returns what of a range of the image lies before its end."""
        return at, max(0, min(length, self._size - at))
