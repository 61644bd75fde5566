"""The signals that end a run, and locked files."""

import errno
import msvcrt
import os
import signal

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGBREAK)
"""Ctrl-C, what Python raises itself, and Ctrl-Break."""
_AT = 1 << 40
"""The locked byte, behind all content: others may not read one that is locked."""


def lock(file: int) -> None:
    """Locks a file until it is closed. Raises BlockingIOError if another process has locked it."""
    os.lseek(file, _AT, os.SEEK_SET)
    try:
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
    except OSError as error:
        raise BlockingIOError(errno.EAGAIN, error.strerror) from None
    finally:
        os.lseek(file, 0, os.SEEK_END)
