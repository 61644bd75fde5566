#!/usr/bin/env python3
"""Takes a lab down whose owner was killed: `guard.py NAME PID` waits until process PID is gone.

It is a separate process in its own session, so that a signal to the owner does not end it. If it is killed as well, the
next lab that comes up sweeps.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time

# The directory of this file would make `import lab` find another one.
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from lab import network  # noqa: E402

# The owner's last command may still create a namespace.
SECOND_LOOK_S = 1.0


def guard(name: str, owner: int) -> None:
    """Waits for the owner's end, then removes the rest of its lab."""
    with contextlib.suppress(ProcessLookupError):
        select.select([os.pidfd_open(owner)], [], [])
    if network.sweep_one(name):
        time.sleep(SECOND_LOOK_S)
        network.remove_stray(name)


if __name__ == "__main__":
    guard(sys.argv[1], int(sys.argv[2]))
