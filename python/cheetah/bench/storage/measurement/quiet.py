"""Checks whether the machine is quiet: other work is measured along with a step."""

import time

from cheetah.bench.storage.measurement import counters

LOOK_S = 1.0
"""The length of the check before a run."""
BUSY_SHARE_MAX = 0.1
_SAID = {
    "processors": "its processors were busy for {:.0%} of the time",
    "stolen": "its host took {:.0%} of them",
    "io stalled": "processes waited for storage for {:.0%} of it",
}


def disturbance(seconds: float | None = None) -> str:
    """Describes the load of the machine while the run is idle, in a sentence; "" if there is almost none."""
    before = counters.read(None)
    time.sleep(LOOK_S if seconds is None else seconds)
    busy = counters.shares(before, counters.read(None), 0.0, {})
    found = [text.format(busy[what]) for what, text in _SAID.items() if busy.get(what, 0.0) > BUSY_SHARE_MAX]
    return f"the machine was not quiet before anything was measured: {', '.join(found)}" if found else ""
