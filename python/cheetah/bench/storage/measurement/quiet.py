"""Whether the machine is quiet: what else it does while something is measured is measured with it."""

import time

from cheetah.bench.storage.measurement import counters

LOOK_S = 1.0
"""How long is looked before a run."""
BUSY_SHARE_MAX = 0.1
_SAID = {
    "processors": "its processors were busy for {:.0%} of the time",
    "stolen": "its host took {:.0%} of them",
    "io stalled": "somebody waited for storage for {:.0%} of it",
}


def disturbance(seconds: float | None = None) -> str:
    """What the machine does while nothing of ours runs, in a sentence; "" if it is next to nothing."""
    before = counters.read(None)
    time.sleep(LOOK_S if seconds is None else seconds)
    busy = counters.shares(before, counters.read(None), 0.0, {})
    found = [text.format(busy[what]) for what, text in _SAID.items() if busy.get(what, 0.0) > BUSY_SHARE_MAX]
    return f"the machine was not quiet before anything was measured: {', '.join(found)}" if found else ""
