"""The source as the hub has it: opened once, shared with the workers of this machine, and known again."""

import contextlib
import dataclasses
import hashlib
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import cheetah
from cheetah.triage.image import Source
from cheetah.triage.settings import Settings
from cheetah.triage.worker import open_source

SAMPLE_BYTES = 64 << 10
CACHE_BYTES_MIN, CACHE_BYTES_MAX = 256 << 20, 16 << 30
DRIVE = ".drive"
PROBES, PROBE_BYTES, PROBE_S = 64, 512, 60.0
"""How many places are tried to see whether a source answers, and for how long."""


@dataclasses.dataclass(frozen=True)
class Hub:
    """`uri` is what workers open."""

    uri: str
    name: str
    stats: Callable[[], dict[str, int]] = dict
    """What the link carried, and what of it was of use."""
    lost: Sequence[str] = ()
    """Sentences on what the source itself has lost."""

    def answers(self) -> bool:
        """Whether anything can be read of the source itself now. What is kept of it on this side does not count: a
        read whose answer asked the source for nothing says nothing."""
        until = time.monotonic() + PROBE_S
        try:
            source = open_source(self.uri)
        except OSError:
            return False
        with contextlib.closing(source):
            for place in random.sample(range(PROBES), PROBES):
                if time.monotonic() > until:
                    break
                asked = self.stats().get("source_requests")
                with contextlib.suppress(OSError):
                    source.pread(source.size * place // PROBES, PROBE_BYTES)
                    if asked is None or self.stats()["source_requests"] > asked:
                        return True
        return False


@contextlib.contextmanager
def opened(settings: Settings) -> Iterator[Hub]:
    """What is behind a link is shared with this machine's workers, so that nothing crosses it twice. An image on this
    machine each of them opens for itself, which takes no detour; so do the workers of a cluster with whatever it
    is."""
    if settings.scheduler is not None or _is_here(settings.source):
        yield Hub(settings.source, _last(settings.source))
        return
    with cheetah.share(settings.source, cache=_cache_bytes()) as share:
        yield Hub(share.uri, share.name, share.stats, share.lost)


def _cache_bytes() -> int:
    """A quarter of this machine's memory, within reason."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(CACHE_BYTES_MIN, min(memory // 4, CACHE_BYTES_MAX))


def _is_here(source: str) -> bool:
    """Whether it is a file or a disk of this machine, and no drive, whose bytes are on others."""
    return "://" not in source and not source.endswith(DRIVE) and os.path.exists(source)


def _last(source: str) -> str:
    """The last part of a path or URI."""
    return source.rstrip("/").rpartition("/")[2] or source


def identity(uri: str, name: str) -> dict[str, Any]:
    """What a source is known by: name, size, and a digest of its first, middle and last 64 KiB. The name is what it
    is called, not where it is: evidence moves."""
    source = open_source(uri)
    try:
        return {"name": name, "size": source.size, "sample": _sample(source)}
    finally:
        source.close()


def _sample(source: Source) -> str:
    digest = hashlib.sha256()
    for start in (0, source.size // 2, max(0, source.size - SAMPLE_BYTES)):
        try:
            digest.update(source.pread(start, SAMPLE_BYTES))
        except OSError:
            digest.update(b"unreadable")
    return digest.hexdigest()
