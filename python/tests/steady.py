"""Repeats tests with short time-outs on machines that stall: one marked `steady` that fails while the machine stalled
runs again. A real fault fails every time."""

import os
import threading
import time

import pytest
from _pytest.runner import runtestprotocol

ATTEMPTS = 6
STALL_S, NAP_S = 0.05, 0.01
"""A processor that runs nothing for this long has stalled; and the sampling interval."""


class Watch:
    """A thread on each processor that watches the clock, and the longest stall."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._look, args=(cpu,)) for cpu in os.sched_getaffinity(0)]

    def __enter__(self) -> "Watch":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _look(self, cpu: int) -> None:
        os.sched_setaffinity(0, {cpu})
        last = time.monotonic()
        while not self._over.is_set():
            time.sleep(NAP_S)
            now = time.monotonic()
            self.longest_s = max(self.longest_s, now - last - NAP_S)
            last = now


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Runs marked tests as often as needed."""
    if item.get_closest_marker("steady") is None:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for left in reversed(range(ATTEMPTS)):
        with Watch() as watch:
            reports = runtestprotocol(item, log=False, nextitem=nextitem)
        if not left or watch.longest_s < STALL_S or not any(report.failed for report in reports):
            break
        print(f"\n{item.nodeid}: the machine stalled for {watch.longest_s:.2f} s meanwhile: once more")
        item._initrequest()  # type: ignore[attr-defined]
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
