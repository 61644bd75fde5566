"""Drives whose nodes are on this machine's side of the network, and what the tests of both drivers of block devices share."""

from __future__ import annotations

import functools
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from boot.tests import guest
from boot.tests.guest import CHEETAH, HOST_ADDRESS
from boot.tests.shell import Shell

# The kernel's module of each driver.
DRIVERS = {"nbd": "nbd", "ublk": "ublk_drv"}
# After this time, requests to a device whose process is dead fail: the kernel's time-out for an answer, and for a new process.
# Devices of ublk have neither: they fail at once.
GRACE = {"nbd": "--timeout 2 --grace 3", "ublk": "--timeout 2"}
UDEV_RULES = str(Path(__file__).resolve().parents[3] / "packaging" / "udev" / "59-cheetah.rules")


def why_not(programs: Sequence[str]) -> str | None:
    """Returns why these tests cannot run here, or None."""
    return guest.missing(*programs) or (
        None if os.path.exists(CHEETAH) else "there is no static binary: run make static"
    )


@functools.cache
def _has_ublk() -> bool:
    shown = subprocess.run([CHEETAH, "attach", "--help"], capture_output=True, check=True).stdout
    return b"--driver" in shown


def skip_without(driver: str) -> None:
    """Skips the test if the static binary was built without the driver."""
    if driver == "ublk" and not _has_ublk():
        pytest.skip("the static binary was built without ublk")


class Nodes(NamedTuple):
    """Nodes on this machine's side of the network."""

    addresses: str
    processes: list[subprocess.Popen[bytes]]

    def end(self) -> None:
        """Ends them all."""
        for process in self.processes:
            process.kill()
            process.wait()


def start_nodes(room: guest.Room, count: int, memory: str = "256MiB") -> Nodes:
    """Starts nodes, and returns once they answer."""
    addresses, processes = [f"{HOST_ADDRESS}:{7001 + 10 * number}" for number in range(count)], []
    for number, address in enumerate(addresses):
        options = ("--memory", memory, "--listen", address, "--insecure", "--name", f"n{number}")
        processes.append(room.start(CHEETAH, "node", *options))
    for number, address in enumerate(addresses):
        url = f"http://{HOST_ADDRESS}:{7002 + 10 * number}/v1/status"
        guest.wait_for(lambda url=url: room.run("curl", "-fsS", url, check=False).returncode == 0, f"node {address}")
    return Nodes(",".join(addresses), processes)


def attach(machine: Shell, source: str, options: str = "", driver: str = "nbd") -> Any:
    """Attaches a source in a guest; returns what the command says."""
    # nbd is the default, and a binary without ublk has no option.
    chosen = "" if driver == "nbd" else f"--driver {driver}"
    said = machine.output(f"cheetah --json attach /{source} --background {chosen} {options}")
    # Warnings come before it.
    return json.loads(said.splitlines()[-1])


def nothing_hangs(machine: Shell) -> None:
    """Asserts that soon no process is in a request that cannot be interrupted."""
    machine.until("! ps -o stat,comm | grep '^D'")
