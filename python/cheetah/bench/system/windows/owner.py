"""Whose a folder or a process is."""

import os
import socket
from pathlib import Path

from cheetah.bench.system.windows.kernel32 import KERNEL, process_times

QUERY = 0x1000
"""PROCESS_QUERY_LIMITED_INFORMATION."""


def require_trusted(_directory: Path) -> None:
    """Trusts every folder: who may replace what is written there is not looked up."""


def is_root() -> bool:
    """Returns False: nothing here needs to know."""
    return False


def is_own(_status: os.stat_result) -> bool:
    """Returns True: the owner is not looked up."""
    return True


def boot() -> str:
    """Returns the name of this machine: the time at which a process was made tells boots apart."""
    return socket.gethostname()


def started(pid: int) -> str | None:
    """Returns when a process was made; with its process id that identifies it. None if there is none."""
    handle = KERNEL.OpenProcess(QUERY, False, pid)
    if not handle:
        return None
    try:
        times = process_times(handle)
    finally:
        KERNEL.CloseHandle(handle)
    return str(times[0]) if times else None
