"""Control groups that limit a command: its memory, page cache included, or its share of a processor."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence

from bench.scratch import Scratch
from cheetah.bench.failure import BenchError
from cheetah.bench.verbs import Enter

ROOT = "/sys/fs/cgroup"
# The kernel's default: a group that has used its share waits for the next period.
PERIOD_US = 100_000


@contextlib.contextmanager
def limited(scratch: Scratch, bytes_max: int) -> Iterator[Enter]:
    """Yields what puts a command into a group with this much memory. Raises BenchError without the memory controller."""
    limit = str(bytes_max)
    with _group(scratch, "memory", {"memory.max": limit}, {"memory.limit_in_bytes": limit}) as enter:
        yield enter


@contextlib.contextmanager
def with_processor_share(scratch: Scratch, share: float) -> Iterator[Enter]:
    """Yields what puts a command into a group with this share of a processor, 1.0 being all of one. Raises BenchError without
    the cpu controller."""
    quota = str(round(share * PERIOD_US))
    first = {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": quota}
    with _group(scratch, "cpu", {"cpu.max": f"{quota} {PERIOD_US}"}, first) as enter:
        yield enter


@contextlib.contextmanager
def _group(scratch: Scratch, controller: str, limits: Mapping[str, str], of_v1: Mapping[str, str]) -> Iterator[Enter]:
    """Yields what puts a command into a new group with these limits; version 1 has other files."""
    # Version 1 has a hierarchy for each controller.
    root_v1 = os.path.join(ROOT, controller)
    is_v1 = os.path.isdir(root_v1)
    name = f"{os.path.basename(scratch.dir)}-{scratch.unique(controller)}"
    group = os.path.join(root_v1 if is_v1 else ROOT, name)
    try:
        os.mkdir(group)
        try:
            for limit, value in (of_v1 if is_v1 else limits).items():
                with open(os.path.join(group, limit), "w", encoding="ascii") as file:
                    file.write(value)

            def enter(argv: Sequence[str]) -> Sequence[str]:
                return ["sh", "-c", 'echo $$ >"$0"/cgroup.procs && exec "$@"', group, *argv]

            yield enter
        finally:
            os.rmdir(group)
    except OSError as error:
        raise BenchError(f"a control group for {controller}: {error}") from error
