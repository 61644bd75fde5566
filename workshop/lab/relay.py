"""Builds and starts `workshop/lab/relay`, which delays frames, for kernels without netem, or spaces them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from lab import crate
from lab.link import Link
from lab.namespace import LabError, Namespace

# The limit of bytes in flight in each direction, so that a sender without congestion control cannot fill memory.
HELD_KIB = 65536


def build() -> str:
    """Builds the relay if it is missing or older than its source; returns its path."""
    return crate.build("lab-relay")


def real_time_prefix() -> list[str]:
    """Returns `chrt` if permitted: a relay that waits for the processor adds an unwanted delay."""
    allowed = subprocess.run(["chrt", "-f", "50", "true"], capture_output=True, check=False).returncode == 0
    return ["chrt", "-f", "50"] if allowed else []


def _processors() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def own_processor_prefix() -> list[str]:
    """Binds a relay of spaced links to one processor, the last, if there are several."""
    processors = _processors()
    return ["taskset", "--cpu-list", str(processors[-1])] if len(processors) > 1 else []


def beside_prefix() -> list[str]:
    """Keeps a command off the relay's processor, which the relay never yields while awake."""
    processors = _processors()
    return ["taskset", "--cpu-list", ",".join(map(str, processors[:-1]))] if len(processors) > 1 else []


def start(
    namespace: Namespace, pairs: Sequence[tuple[Link, str, str]], log_path: str, die_with_parent: bool = True
) -> subprocess.Popen[str]:
    """Starts a relay in `namespace` between each pair of interfaces, with the properties of their link. It ends with
    the namespace's interfaces. It logs dropped frames to `log_path`."""
    argv = [build(), "--held-kib", str(HELD_KIB)]
    for link, left, right in pairs:
        argv += [*link.relayed(), f"{left}:{right}"]
    prefix = ["setpriv", "--pdeathsig", "TERM"] if die_with_parent else ["setsid"]
    if any(link.spaced for link, _, _ in pairs):
        prefix += own_processor_prefix()
    argv = prefix + namespace.command(real_time_prefix() + argv)
    with open(log_path, "w+", encoding="utf-8") as log:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
        assert process.stdout is not None
        ready = process.stdout.readline()
        process.stdout.close()
        if ready.strip() != "ready":
            process.kill()
            process.wait()
            log.seek(0)
            raise LabError(f"the relay did not start: {log.read().strip()}")
    return process
