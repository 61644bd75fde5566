"""Congestion control and windows of TCP in the machines of a lab."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from cheetah.bench.failure import BenchError
from lab.namespace import Namespace
from lab.network import Lab

USUAL = "cubic"
"""What Linux and Windows use unless told otherwise. A new namespace would inherit this machine's choice."""
AVAILABLE = "/proc/sys/net/ipv4/tcp_available_congestion_control"
ALLOWED = "/proc/sys/net/ipv4/tcp_allowed_congestion_control"
IN_USE = "/proc/sys/net/ipv4/tcp_congestion_control"


@contextlib.contextmanager
def allowed_controls() -> Iterator[None]:
    """Lets namespaces choose any congestion control that this machine has; afterwards only those as before."""
    with open(ALLOWED, encoding="ascii") as file:
        before = file.read()
    with open(AVAILABLE, encoding="ascii") as file:
        every = file.read()
    try:
        with open(ALLOWED, "w", encoding="ascii") as file:
            file.write(every)
        yield
    finally:
        with open(ALLOWED, "w", encoding="ascii") as file:
            file.write(before)


def set_control(lab: Lab, control: str) -> None:
    """Sets the congestion control of all machines. Raises BenchError if the kernel does not have it."""
    for machine in _machines(lab):
        machine.set_sysctl("net/ipv4/tcp_congestion_control", control)
        if control not in machine.run(["cat", IN_USE]).split():
            raise BenchError(f"this kernel has no congestion control {control}")


def set_windows(lab: Lab, bytes_max: int) -> None:
    """Sets the greatest windows of all machines."""
    for machine in _machines(lab):
        for key in ("tcp_rmem", "tcp_wmem"):
            machine.set_sysctl(f"net/ipv4/{key}", f"4096 131072 {bytes_max}")


def _machines(lab: Lab) -> list[Namespace]:
    return [lab.examiner, *(node.namespace for node in lab.nodes)]
