"""Keeps programs in memory, so that dropping caches does not make a tool load from the system's disk."""

import contextlib
import functools
import mmap
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

_PATH = re.compile(r"(/\S+) \(0x")
_LDD_S_MAX = 10.0
_EVERYONES = (Path("/etc/ld.so.cache"),)


@contextlib.contextmanager
def pinned(programs: Iterable[str]) -> Iterator[None]:
    """Maps these programs and their libraries, since the kernel does not drop mapped pages. A missing program is
    ignored; a script without libraries is read again each time."""
    files = set(_EVERYONES)
    for program in programs:
        if found := shutil.which(program):
            files.update([Path(found).resolve(), *_libraries(found)])
    with contextlib.ExitStack() as stack:
        for path in files:
            with contextlib.suppress(OSError, ValueError), open(path, "rb") as file:
                flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
                stack.enter_context(mmap.mmap(file.fileno(), 0, flags=flags, prot=mmap.PROT_READ))
        yield


@functools.lru_cache
def _libraries(program: str) -> list[Path]:
    try:
        listed = subprocess.run(
            ["ldd", program], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=_LDD_S_MAX, check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return []
    return [Path(found).resolve() for found in _PATH.findall(listed.stdout)]
