"""Standard streams that cannot fail: a reader that has gone away or a full disk ends output, never the work."""

import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def guard() -> None:
    """Guards stdout and stderr of this process. Call it once, before anything is printed.

    Descriptors 0 to 2 that are closed are opened on /dev/null first: otherwise the next file opened, perhaps a result,
    would become stderr, and receive every library's complaints.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdout = _guarded(1, sys.stdout)
    sys.stderr = _guarded(2, sys.stderr)


def _guarded(descriptor: int, present: TextIO | None) -> TextIO:
    """`present` may be None: Python's stream for a descriptor that was closed when it started."""
    encoding = present.encoding if present else "utf-8"
    raw = io.BufferedWriter(_Raw(descriptor))
    # A name that the locale cannot encode is escaped, where Python's own stdout would raise UnicodeEncodeError.
    return io.TextIOWrapper(raw, encoding, "backslashreplace", line_buffering=descriptor == 2 or os.isatty(descriptor))


class _Raw(io.RawIOBase):
    """A descriptor. After a failed write the rest of the output is dropped."""

    def __init__(self, descriptor: int):
        super().__init__()
        self._descriptor = descriptor
        self._failed = False

    def fileno(self) -> int:
        """Returns the descriptor."""
        return self._descriptor

    def isatty(self) -> bool:
        """Returns whether it is a terminal."""
        return os.isatty(self._descriptor)

    def writable(self) -> bool:
        """Returns True."""
        return True

    def write(self, data: "ReadableBuffer", /) -> int:
        """Writes what the descriptor takes; after an error, pretends to."""
        if not self._failed:
            try:
                return os.write(self._descriptor, data)
            except OSError:
                self._failed = True
        return memoryview(data).nbytes
