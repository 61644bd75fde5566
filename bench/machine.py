"""The machine and the programs of a run, as the report describes them."""

import os
import platform
import re
import shutil
import subprocess

from bench import cheetah

# Program, how to ask for its version.
PROGRAMS = (
    ("nbdkit", ["nbdkit", "--version"]),
    ("qemu-nbd", ["qemu-nbd", "--version"]),
    ("nbdcopy, nbdfuse", ["nbdcopy", "--version"]),
    ("ewfacquire, ewfmount", ["ewfacquire", "-V"]),
    ("xmount", ["xmount", "--version"]),
    ("tgtd", ["tgtd", "--version"]),
    ("gzip", ["gzip", "--version"]),
    ("zstd", ["zstd", "--version"]),
    ("fio", ["fio", "--version"]),
    ("iperf3", ["iperf3", "--version"]),
    ("trafgen, mausezahn", ["trafgen", "--version"]),
    ("nping", ["nping", "--version"]),
    ("hping3", ["hping3", "--version"]),
    ("scamper", ["scamper", "-v"]),
    ("tcpdump", ["tcpdump", "--version"]),
    ("The Sleuth Kit", ["fls", "-V"]),
    ("scalpel", ["scalpel", "-V"]),
)


def _first_line(argv):
    if not shutil.which(argv[0]):
        return "not installed"
    done = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False)
    lines = (done.stdout or done.stderr).strip().splitlines()
    return lines[0] if lines else "?"


def _read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _cpu():
    info = _read("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.*)", info)
    kind = "a virtual machine" if " hypervisor" in info else "bare metal"
    return f"{model.group(1) if model else platform.machine()}, {os.cpu_count()} processors, {kind}"


def _memory():
    kib = int(re.search(r"MemTotal:\s+(\d+)", _read("/proc/meminfo")).group(1))
    return f"{kib / (1 << 20):.1f} GiB"


def describe():
    """The description, as a dictionary of lines."""
    machine = {
        "processor": _cpu(),
        "memory": _memory(),
        "kernel": platform.release(),
        "TCP": _read("/proc/sys/net/ipv4/tcp_congestion_control").strip(),
        "python": platform.python_version(),
    }
    for name, argv in PROGRAMS:
        machine[name] = _first_line(argv)
    machine["cheetah"] = f"{_first_line([cheetah.binary(), '--version'])}, tree at {cheetah.commit()}"
    return machine
