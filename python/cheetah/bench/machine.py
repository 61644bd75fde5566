"""The description of the machine and its programs for the report."""

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence

ANSWER_S_MAX = 20.0


def first_line(argv: Sequence[str]) -> str:
    """Returns the first line of a program's version, or says that it is not installed."""
    if not shutil.which(argv[0]):
        return "not installed"
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_S_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return "?"
    lines = (done.stdout or done.stderr).strip().splitlines()
    return lines[0] if lines else "?"


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _cpu() -> str:
    info = _read("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.*)", info)
    kind = "a virtual machine" if " hypervisor" in info else "bare metal"
    return f"{model.group(1) if model else platform.machine()}, {os.cpu_count()} processors, {kind}"


def _memory() -> str:
    total = re.search(r"MemTotal:\s+(\d+)", _read("/proc/meminfo"))
    return f"{int(total.group(1)) / (1 << 20):.1f} GiB" if total else "?"


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


def describe(programs: Iterable[tuple[str, Sequence[str]]] = ()) -> dict[str, str]:
    """Returns the description as a dictionary of lines; `programs` are names and commands that print a version."""
    machine = {
        "processor": _cpu(),
        "memory": _memory(),
        "system": _system(),
        "kernel": platform.release(),
        "TCP": _read("/proc/sys/net/ipv4/tcp_congestion_control").strip(),
        "python": platform.python_version(),
    }
    for name, argv in programs:
        machine[name] = first_line(argv)
    return machine
