"""Tasks for tests of the pool, run in worker processes."""

import os
import signal
import time
from typing import Any

from cheetah.triage.task import Result, Task


def do(task: Task, worker: Any) -> Result:
    """Performs the action that the task's first word names."""
    word = task.what[0] if isinstance(task.what[0], str) else task.entries()[0].name
    if word == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "hang":
        time.sleep(1000)
    if word == "die once" and not os.path.exists(task.what[1]):
        with open(task.what[1], "w", encoding="ascii"):
            os.kill(os.getpid(), signal.SIGKILL)
    if word == "read slowly":
        while not os.path.exists(task.what[1]):
            time.sleep(0.02)
            worker.beat()
    return Result(bytes_read=len(task.what))
