"""The description of the machine."""

import ctypes
import os
import socket
import sys
import winreg

from cheetah.bench.system.windows.kernel32 import KERNEL, MemoryState


def _cpu() -> str:
    model = ""
    try:
        with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, r"HARDWARE\DESCRIPTION\System\CentralProcessor\0") as key:
            model = str(winreg.QueryValueEx(key, "ProcessorNameString")[0]).strip()
    except OSError:
        pass
    return f"{model or os.environ.get('PROCESSOR_IDENTIFIER', '?')}, {os.cpu_count()} processors"


def _memory() -> str:
    state = MemoryState(dwLength=ctypes.sizeof(MemoryState))
    return f"{state.ullTotalPhys / (1 << 30):.1f} GiB" if KERNEL.GlobalMemoryStatusEx(ctypes.byref(state)) else "?"


def _build() -> str:
    """Returns the version. Asking by the module `platform` would start queries that take seconds."""
    major, minor, build = sys.getwindowsversion().platform_version
    return f"{major}.{minor}.{build}"


def facts() -> dict[str, str]:
    """Returns the description as a dictionary of lines."""
    return {"processor": _cpu(), "memory": _memory(), "system": f"Windows {_build()}", "kernel": _build(), "TCP": ""}


def host() -> dict[str, str]:
    """Returns the name and the kernel of this machine."""
    return {"host": socket.gethostname(), "kernel": _build()}
