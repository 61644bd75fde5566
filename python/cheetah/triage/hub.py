"""The source as the hub has it: opened once, shared with the workers of this machine, and known again."""

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from typing import Any

from cheetah.triage.settings import Settings
from cheetah.triage.worker import Source, open_source

SAMPLE_BYTES = 64 << 10


class Hub:
    """`uri` is what workers open."""

    def __init__(self, uri: str, stats: Callable[[], dict[str, Any]]):
        self.uri = uri
        self.stats = stats
        """What the link carried."""


@contextlib.contextmanager
def opened(settings: Settings) -> Iterator[Hub]:
    """Shares the source with this machine's workers; workers of a cluster open it themselves."""
    import cheetah

    if settings.scheduler is not None:
        yield Hub(settings.source, dict)
        return
    if not hasattr(cheetah, "share"):  # TODO
        yield Hub(settings.source, dict)
        return
    with cheetah.share(settings.source) as share:
        yield Hub(share.uri, share.stats)


def name_of(source: str) -> str:
    """What a source is called: the last part of its path or URI."""
    return source.rstrip("/").rpartition("/")[2] or source


def identity(uri: str, name: str) -> dict[str, Any]:
    """What a source is known by: name, size, and a digest of its first, middle and last 64 KiB. The name is what it is called,
    not where it is: evidence moves."""
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
