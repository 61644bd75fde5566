"""How much written data the kernel holds in memory before it is on storage."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

SETTINGS = Path("/proc/sys/vm")
BYTES, RATIO = "dirty_bytes", "dirty_ratio"


@contextlib.contextmanager
def unwritten_at_most(size_bytes: int, settings: Path = SETTINGS) -> Iterator[None]:
    """Has the kernel hold at most that many written bytes, as on a machine with less memory: a program that writes more
    waits for the storage. Needs root."""
    before = {name: (settings / name).read_text(encoding="ascii").strip() for name in (BYTES, RATIO)}
    # Each setting sets the other one to zero; the one that is not zero is in force.
    name = RATIO if before[BYTES] == "0" else BYTES
    (settings / BYTES).write_text(str(size_bytes), encoding="ascii")
    try:
        yield
    finally:
        (settings / name).write_text(before[name], encoding="ascii")
