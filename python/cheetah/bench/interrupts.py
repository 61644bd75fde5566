"""Delaying what ends a run, so that a step is done as a whole or not at all."""

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Delays SIGINT, SIGTERM and the loss of the terminal: interrupted halfway, taking down would leave a mess."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []
    ended_by = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {one: signal.signal(one, lambda number, _: heard.append(number)) for one in ended_by}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, signal.SIG_DFL if handler is None else handler)
    if heard:
        signal.raise_signal(heard[0])
