"""A control group that limits the memory of a command, its page cache included."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence

from bench.scratch import Scratch
from cheetah.bench.failure import BenchError
from cheetah.bench.verbs import Enter

ROOT = "/sys/fs/cgroup"
# Version 1 has a hierarchy for each controller.
ROOT_V1 = os.path.join(ROOT, "memory")


@contextlib.contextmanager
def limited(scratch: Scratch, bytes_max: int) -> Iterator[Enter]:
    """Yields what puts a command into a group with this much memory. Raises BenchError without the memory controller."""
    is_v1 = os.path.isdir(ROOT_V1)
    group = os.path.join(ROOT_V1 if is_v1 else ROOT, os.path.basename(scratch.dir))
    limit = "memory.limit_in_bytes" if is_v1 else "memory.max"
    try:
        os.mkdir(group)
        try:
            with open(os.path.join(group, limit), "w", encoding="ascii") as file:
                file.write(str(bytes_max))

            def enter(argv: Sequence[str]) -> Sequence[str]:
                return ["sh", "-c", 'echo $$ >"$0"/cgroup.procs && exec "$@"', group, *argv]

            yield enter
        finally:
            os.rmdir(group)
    except OSError as error:
        raise BenchError(f"a control group for memory: {error}") from error
