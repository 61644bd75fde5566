"""Reads the stream of one file from beginning to end."""

import collections.abc
import dataclasses
import re
from typing import Any

import pytsk3

from cheetah.triage.reading import salvage
from cheetah.triage.reading.image import GONE
from cheetah.triage.reading.worker import Worker
from cheetah.triage.task import Entry

_INSIDE = re.compile(r"\A\w+: \([\w.]+:\d+\) ")
"""The place in pytsk3's own code with which its messages begin."""


@dataclasses.dataclass
class OpenStream:
    """A file's open stream."""

    entry: Entry
    file: pytsk3.File
    size: int
    first: int
    """The offset of its first run in the volume, in bytes; reads are sorted by it."""
    encrypted: bool
    skip: str | None = None
    """Why its content is no longer its own."""
    note: str | None = None
    without_atoms: bool = False
    """Whether its bytes were searched where they lie, and no atom of the rules is among them."""
    valid: int | None = None
    """The length behind which its bytes read as zeros, whatever the disk holds there; None if there is none."""

    def read(self, offset: int, length: int) -> bytes:
        """Returns bytes as The Sleuth Kit reads them, which may be fewer. Raises OSError if it does not."""
        entry = self.entry
        if entry.attr_type is None:
            return bytes(self.file.read_random(offset, length))
        return bytes(self.file.read_random(offset, length, entry.attr_type, entry.attr_id))


class Reader:
    """Reads a stream from beginning to end. `complete` says at any time whether nothing is missing so far."""

    def __init__(self, one: OpenStream, worker: Worker, max_bytes: int):
        self._one = one
        self._worker = worker
        self._end = min(one.size, max_bytes)
        self._max_bytes = max_bytes
        self._lost = 0
        self._given_up = 0
        self._tried = False
        self._error = ""
        self.bytes_read = 0
        self._noted: list[tuple[int, int, str]] = []
        self.unreadable: list[tuple[int, int, str]] = []
        """Unreadable ranges: offset and length in the image, and why; the smallest pieces tried."""

    @property
    def complete(self) -> bool:
        """Whether everything so far was read, and the limit does not cut the stream off."""
        return self.lacks_nothing and self._end == self._one.size

    @property
    def lacks_nothing(self) -> bool:
        """Whether all that was tried so far was read."""
        return not self._lost and not self._given_up

    @property
    def is_rest_searched(self) -> bool:
        """Whether what was not read was searched where it lies."""
        return self._one.without_atoms and self._one.size > self.bytes_read

    def head_and_rest(self, head_bytes: int) -> collections.abc.Iterator[tuple[int, bytes]]:
        """As `pieces`, but ends after the first bytes, if these can be read."""
        yield from self.pieces(0, head_bytes)
        if not self.lacks_nothing:
            yield from self.pieces(head_bytes)

    def pieces(self, start: int = 0, end: int | None = None) -> collections.abc.Iterator[tuple[int, bytes]]:
        """Yields offset and bytes, ascending, without unreadable pieces."""
        until = self._end if end is None else min(end, self._end)
        for offset, length, content, given_up in salvage.of(self._read, start, until):
            if content is not None:
                self.bytes_read += length
                yield offset, content
                continue
            if given_up or self._error == GONE:
                self._given_up += length
            else:
                self._lost += length
            # The failures before giving up are noted already.
            self._keep_noted([] if given_up else self._noted)

    def _keep_noted(self, noted: list[tuple[int, int, str]]) -> None:
        """Notes unreadable ranges, joining neighbours with the same cause."""
        for offset, length, why in noted:
            last, last_length, last_why = self.unreadable[-1] if self.unreadable else (-1, 0, "")
            if (last + last_length, last_why) == (offset, why):
                self.unreadable[-1] = (last, last_length + length, why)
            else:
                self.unreadable.append((offset, length, why))

    def _read(self, offset: int, length: int) -> bytes | None:
        """Returns all of these bytes, or None and sets `_error`."""
        valid = self._one.valid
        if valid is not None and offset + length > valid:
            own = self._read_own(offset, valid - offset) if offset < valid else b""
            return None if own is None else own.ljust(length, b"\0")
        return self._read_own(offset, length)

    def _read_own(self, offset: int, length: int) -> bytes | None:
        """Returns all of these bytes as The Sleuth Kit reads them, or None and sets `_error`."""
        # After an error of the source The Sleuth Kit may continue with zeros: trust only the notes of the source.
        failed: OSError | None = None
        piece = b""
        try:
            piece = self._one.read(offset, length)
        except OSError as error:
            failed = error
        unreadable = self._worker.take_unreadable()
        if not unreadable and failed is None and len(piece) == length:
            return piece
        self._error = reason(unreadable, failed)
        self._tried |= not unreadable or any(why != GONE for _, _, why in unreadable)
        # The last one was tried alone.
        self._noted = unreadable[-1:]
        return None

    def state(self) -> Any:
        """Returns the row's read_state."""
        if self.complete:
            return "whole"
        return "partial" if self.bytes_read else "unreadable" if self._tried else "unread"

    def why(self) -> str | None:
        """Returns the missing ranges."""
        said = []
        if self._lost:
            said.append(f"{self._lost} of its {self._one.size} bytes could not be read: {self._error}")
        if self._given_up:
            said.append(f"{self._given_up} bytes were given up after many failures, and may be readable: {self._error}")
        if said:
            return "; ".join(said)
        if self._end != self._one.size and self._one.without_atoms:
            # Less than that was read.
            return f"larger than the limit of {self._max_bytes} bytes"
        if self._end != self._one.size:
            return f"larger than the limit of {self._max_bytes} bytes: only its first {self._end} bytes were read"
        return None


def reason(unreadable: list[tuple[int, int, str]], error: OSError | None) -> str:
    """Returns the source's reason, or The Sleuth Kit's."""
    if unreadable:
        return unreadable[-1][2]
    if error is None:
        return "the file ends before its recorded size"
    return _INSIDE.sub("", error.strerror or str(error), count=1)
