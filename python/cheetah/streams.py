"""Standard streams that cannot fail: a reader that has gone away, or a full disk, ends the output and not the work."""

import io
import os
import select
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


PATIENCE_S = 5.0
"""The wait for a reader of stderr that does not read, such as a stopped terminal."""


def guard() -> None:
    """Guards stdout and stderr of this process. Call it once, before anything is printed.

    Closed descriptors 0 to 2 are opened on /dev/null first: otherwise the next file opened, perhaps a result, would become
    stderr, and libraries would write their errors into it.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdout = _guarded(1, sys.stdout)
    sys.stderr = _guarded(2, sys.stderr)


def _guarded(descriptor: int, present: TextIO | None) -> TextIO:
    """Returns a guarded stream. `present` is None if the descriptor was closed when Python started."""
    encoding = present.encoding if present else "utf-8"
    raw = io.BufferedWriter(_Raw(descriptor))
    # Escapes a name that the locale cannot encode; Python's own stdout would raise UnicodeEncodeError.
    return io.TextIOWrapper(raw, encoding, "backslashreplace", line_buffering=descriptor == 2 or os.isatty(descriptor))


class _Raw(io.RawIOBase):
    """A descriptor. Output is dropped after a failed write, and on stderr while its reader does not read."""

    def __init__(self, descriptor: int):
        super().__init__()
        self._descriptor = descriptor
        self._failed = False
        self._patience_s = PATIENCE_S
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

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
        """Writes as much as the descriptor takes; drops the rest."""
        with memoryview(data) as view, view.cast("B") as content:
            if not self._failed and self._is_ready():
                try:
                    # A pipe that is ready takes this much without blocking.
                    return os.write(self._descriptor, content[: select.PIPE_BUF])
                except BlockingIOError:
                    pass
                except OSError:
                    self._failed = True
            return content.nbytes

    def _is_ready(self) -> bool:
        """Waits for a slow reader of stderr, but only once. Output to stdout is the result, and waits for its reader."""
        if self._descriptor != 2 or self._poll.poll(self._patience_s * 1000):
            self._patience_s = PATIENCE_S
            return True
        self._patience_s = 0.0
        return False
