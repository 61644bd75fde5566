"""The signals that end a run, and locked files."""

import fcntl
import signal

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, a request to end, and the loss of the terminal."""


def lock(file: int) -> None:
    """Locks a file until it is closed. Raises BlockingIOError if another process has locked it."""
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
