"""Network namespaces, and running commands in them."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence

NETNS_DIR = "/run/netns"
END_TIMEOUT_S = 5.0
REMOVE_TRIES = 5
REMOVE_PAUSE_S = 0.1


class LabError(Exception):
    """The lab cannot fulfil a request: the failure, and the next step."""


def run(argv: Sequence[str]) -> str:
    """Runs a command to its end and returns its output; a failure carries the command and its error message."""
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise LabError(f"{argv[0]} is not installed; the lab needs iproute2 and util-linux") from None
    if done.returncode != 0:
        complaint = (done.stderr or done.stdout).strip() or f"exit status {done.returncode}"
        raise LabError(f"{' '.join(argv)}: {complaint}")
    return done.stdout


class Namespace:
    """A network namespace with a unique name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = os.path.join(NETNS_DIR, name)

    def create(self) -> None:
        """Creates it, with loopback up, without IPv6 (its traffic disturbs captures), and with buffers for a large
        bandwidth-delay product."""
        run(["ip", "netns", "add", self.name])
        self.set_sysctl("net/ipv6/conf/all/disable_ipv6", "1")
        self.set_sysctl("net/ipv6/conf/default/disable_ipv6", "1")
        self.set_sysctl("net/ipv4/tcp_rmem", "4096 131072 33554432")
        self.set_sysctl("net/ipv4/tcp_wmem", "4096 65536 33554432")
        self.run(["ip", "link", "set", "lo", "up"])

    def exists(self) -> bool:
        """Returns whether it exists."""
        return os.path.exists(self.path)

    def remove(self) -> None:
        """Ends the processes in it, then removes it; does nothing if it does not exist."""
        tries_left = REMOVE_TRIES
        while self.exists():
            _end(self.processes())
            tries_left -= 1
            try:
                run(["ip", "netns", "del", self.name])
            except LabError:
                # Another process removes it as well, or the last command of a killed owner still creates it.
                if self.exists() and tries_left == 0:
                    raise
                time.sleep(REMOVE_PAUSE_S)

    def processes(self) -> list[int]:
        """Returns the processes in it, except this one and its ancestors."""
        try:
            wanted = os.stat(self.path).st_ino
        except FileNotFoundError:
            return []
        spared = _ancestors(os.getpid())
        found = []
        for entry in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if entry.isdigit() and int(entry) not in spared and os.stat(f"/proc/{entry}/ns/net").st_ino == wanted:
                    found.append(int(entry))
        return found

    def command(self, argv: Sequence[str]) -> list[str]:
        """Returns `argv` to run in this namespace. It does not use `ip netns exec`, which unshares mounts: a FUSE
        mount made under it is invisible outside."""
        return ["nsenter", f"--net={self.path}", "--", *argv]

    def run(self, argv: Sequence[str]) -> str:
        """Runs a command in this namespace to its end and returns its output."""
        return run(self.command(argv))

    def set_sysctl(self, key: str, value: str) -> None:
        """Sets a sysctl of the namespace, if the kernel has it."""
        script = f'if [ -e /proc/sys/{key} ]; then echo "{value}" > /proc/sys/{key}; fi'
        self.run(["sh", "-c", script])


def _ancestors(pid: int) -> set[int]:
    """Returns the process and its ancestors."""
    found = set()
    while pid > 0 and pid not in found:
        found.add(pid)
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
                pid = int(file.read().rpartition(")")[2].split()[1])
        except FileNotFoundError:
            break
    return found


def _end(pids: list[int]) -> None:
    """Sends SIGTERM, so that mounts are taken down, and later SIGKILL."""
    handles = []
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            handles.append(os.pidfd_open(pid))
    for number, until_s in ((signal.SIGTERM, END_TIMEOUT_S), (signal.SIGKILL, 1.0)):
        for handle in handles:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
        handles = _wait(handles, until_s)


def _wait(handles: list[int], seconds: float) -> list[int]:
    """Waits for processes to end; closes the handles of those that did and returns the others."""
    deadline = time.monotonic() + seconds
    while True:
        running = []
        for handle in handles:
            if _has_ended(handle):
                os.close(handle)
            else:
                running.append(handle)
        handles = running
        if not handles or time.monotonic() > deadline:
            return handles
        time.sleep(0.01)


def _has_ended(handle: int) -> bool:
    """Returns whether the process has ended, reaped or not: a pidfd is readable then."""
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(0))
