"""The description of the machine."""

import os
import platform
import re


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


def facts() -> dict[str, str]:
    """Returns the description as a dictionary of lines."""
    return {
        "processor": _cpu(),
        "memory": _memory(),
        "system": _system(),
        "kernel": platform.release(),
        "TCP": _read("/proc/sys/net/ipv4/tcp_congestion_control").strip(),
    }


def host() -> dict[str, str]:
    """Returns the name and the kernel of this machine."""
    system = os.uname()
    return {"host": system.nodename, "kernel": system.release}
