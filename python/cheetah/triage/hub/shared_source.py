"""The source as the hub has it: opened once, shared with the workers of this machine, and known again."""

import contextlib
import dataclasses
import functools
import hashlib
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import Any

import cheetah
from cheetah.triage.reading.image import Source
from cheetah.triage.settings import Settings
from cheetah.triage.workers.worker import open_source

SAMPLES, SAMPLE_BYTES = 64, 4 << 10
"""By how many places a source is known again, of so many bytes each; all are read at once, in one round trip."""
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
    if _is_here(settings.source):
        yield Hub(settings.source, _last(settings.source))
        return
    if settings.scheduler is not None:
        with cheetah.open(settings.source) as device:
            name = device.name
        yield Hub(settings.source, name)
        return
    with cheetah.share(settings.source, cache=_cache_bytes()) as share:
        yield Hub(share.uri, share.name, share.stats, share.lost)


@contextlib.contextmanager
def opening(settings: Settings) -> Iterator[Callable[[], Hub]]:
    """Opens the source while the caller does something else: over a link that takes some round trips. Whoever calls
    what this gives waits for it; OSError where it cannot be opened."""
    with contextlib.ExitStack() as stack, futures.ThreadPoolExecutor(1) as pool:
        yield pool.submit(lambda: stack.enter_context(opened(settings))).result


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
    """What a source is known by: name, size, and digests of `SAMPLES` places from its first byte to its last. The
    name is what it is called, not where it is: evidence moves."""
    with contextlib.closing(open_source(uri)) as source, futures.ThreadPoolExecutor(SAMPLES) as pool:
        last = max(0, source.size - SAMPLE_BYTES)
        places = [last * number // (SAMPLES - 1) for number in range(SAMPLES)]
        samples = list(pool.map(functools.partial(_sample, source), places))
        return {"name": name, "size": source.size, "samples": samples}


def _sample(source: Source, start: int) -> str | None:
    """The digest of a place; None where it cannot be read."""
    try:
        return hashlib.sha256(source.pread(start, SAMPLE_BYTES)).hexdigest()[:16]
    except OSError:
        return None


def is_same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two identities can be of the same source. A place that could not be read says nothing."""
    if (one["name"], one["size"]) != (other["name"], other["size"]):
        return False
    pairs = zip(one["samples"], other["samples"], strict=True)
    return all(first is None or second is None or first == second for first, second in pairs)
