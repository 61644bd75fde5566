"""Child processes measured, and the ports that servers under measurement listen on."""

import os
import resource
import socket
import time
from collections.abc import Sequence

from cheetah.bench.failure import BenchError
from cheetah.bench.process import Process, run

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_s(process: Process) -> float:
    """Returns the processor time of all its threads so far, user and system, ended threads included."""
    with open(f"/proc/{process.pid}/stat", encoding="ascii", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def memory_peak_bytes(process: Process) -> int:
    """Returns its peak resident memory (VmHWM)."""
    with open(f"/proc/{process.pid}/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    raise BenchError(f"{process.name}: the kernel does not report its peak memory")


def timed(argv: Sequence[str], timeout_s: float = 1800) -> float:
    """Runs a command to its end and returns the seconds it took."""
    start = time.perf_counter()
    run(argv, timeout_s)
    return time.perf_counter() - start


def measured(argv: Sequence[str], timeout_s: float = 1800) -> tuple[float, float, str]:
    """Runs a command to its end; returns its elapsed seconds, its processor seconds, and its output."""

    def children_s() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    before_s, start = children_s(), time.perf_counter()
    printed = run(argv, timeout_s)
    return time.perf_counter() - start, children_s() - before_s, printed


def free_port(count: int = 1) -> int:
    """Returns the first of `count` adjacent TCP ports that are free on loopback."""
    while True:
        with socket.socket() as first:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
        if port + count < 65536 and all(_is_free(port + offset) for offset in range(count)):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def answers(port: int, address: str = "127.0.0.1") -> bool:
    """Returns whether a server listens on a port."""
    try:
        socket.create_connection((address, port), timeout=1).close()
    except OSError:
        return False
    return True
