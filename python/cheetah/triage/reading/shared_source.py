"""The source in the hub: opened once, shared with the workers of this machine, and identified."""

import contextlib
import dataclasses
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import Any

import cheetah
from cheetah import path_text, placing, samples
from cheetah.device import Part
from cheetah.open_options import Logical, Unlocked
from cheetah.triage.reading.worker import open_source
from cheetah.triage.settings import Settings

CACHE_BYTES_MIN, CACHE_BYTES_MAX = 256 << 20, 16 << 30
DRIVE = ".drive"
PROBES, PROBE_BYTES, PROBE_S = 64, 512, 60.0
"""How many places are probed to see whether a source answers, with how many bytes, and for how long."""


@dataclasses.dataclass(frozen=True)
class SharedSource:
    """An open source. Workers open `uri`."""

    uri: str
    name: str
    stats: Callable[[], dict[str, int]] = dict
    """Counters of the link and the cache."""
    sector_size: int | None = None
    """The size of the source's sectors in bytes, if the opened source records it; of a file or disk of this machine, the
    worker knows."""
    lost: Sequence[str] = ()
    """Sentences about parts that the source itself has lost."""
    doubts: Callable[[], Sequence[str]] = tuple
    """Looks for doubts about the source, a sentence each: a partition table or a file system that reaches beyond its end,
    say. Takes some round trips over a link."""
    connections: Sequence[str] = ()
    """How the connections to the source are protected, a sentence for each server; none for a file or disk of this
    machine."""
    unlocked: Unlocked | None = None
    """What the keys did, as `cheetah.Device.unlocked`; None if none were given."""
    locked: Sequence[str] = ()
    """What the keys did not do, a sentence each."""

    logical: Logical = dataclasses.field(default_factory=lambda: {"volumes": [], "not_opened": []})
    """The arrays and logical volumes, as `cheetah.Device.logical`."""
    size: int | None = None
    """The size of the source in bytes, where `uri` is longer: logical volumes lie behind its end."""
    parts: Callable[[], Sequence[Part]] = tuple
    """Asks for the parts of a drive with the hosts that hold them; none of other sources, and none without a scheduler."""

    def opened_volumes(self) -> list[dict[str, Any]]:
        """Returns the encrypted volumes that are open: workers read them decrypted."""
        return self.unlocked["opened"] if self.unlocked else []

    def answers(self) -> bool:
        """Returns whether anything can be read from the source now. A read answered from the cache does not count."""
        until = time.monotonic() + PROBE_S
        try:
            source = open_source(self.uri)
        except OSError:
            return False
        with contextlib.closing(source):
            for place in random.sample(range(PROBES), PROBES):
                if time.monotonic() > until:
                    break
                requests_before = self.stats().get("source_requests")
                with contextlib.suppress(OSError):
                    source.pread(source.size * place // PROBES, PROBE_BYTES)
                    if requests_before is None or self.stats()["source_requests"] > requests_before:
                        return True
        return False


@contextlib.contextmanager
def opened(settings: Settings) -> Iterator[SharedSource]:
    """Shares a source behind a link with the workers of this machine, so that nothing is transferred twice. Each
    worker opens a local image itself; so do the workers of a cluster with any source. A source with keys is shared, too: no
    worker gets them, and each is tried once. So is one with logical volumes in several pieces, which are put together once, and one
    whose volumes lie on other sources, and one with shadow copies whose files are listed."""
    is_here = _is_here(settings.source)
    if is_here and not settings.unlock and not settings.beside and not settings.shadow_copies:
        with cheetah.open(settings.source) as device:
            logical = device.logical
            if settings.scheduler is not None or all(one["offset"] < device.size for one in logical["volumes"]):
                yield SharedSource(
                    settings.source,
                    _name(settings.source),
                    lost=device.lost,
                    doubts=lambda: device.doubts,
                    logical=_in_one_piece(logical, device.size),
                )
                return
    if settings.scheduler is not None:
        with cheetah.open(settings.source, shadow_copies=()) as device:
            yield SharedSource(
                settings.source,
                device.name,
                sector_size=device.sector_size,
                lost=device.lost,
                doubts=lambda: device.doubts,
                connections=device.connections(),
                logical=_in_one_piece(device.logical, device.size),
                parts=lambda: placing.parts_of(device),
            )
        return
    with cheetah.share(
        settings.source,
        cache=_cache_bytes(),
        unlock=settings.unlock,
        beside=settings.beside,
        shadow_copies=settings.shadow_copies,
    ) as share:
        yield SharedSource(
            share.uri,
            _name(settings.source) if is_here else share.name,
            dict if is_here else share.stats,
            share.sector_size,
            share.lost,
            lambda: share.doubts,
            share.connections(),
            share.unlocked,
            share.locked,
            share.logical,
            share.size,
        )


def _in_one_piece(logical: Logical, size: int) -> Logical:
    """Returns the arrays and logical volumes that a worker finds where they lie in the source, and names the others."""
    apart = [one for one in logical["volumes"] if one["offset"] >= size]
    why = "is not listed: it lies in several pieces, which are put together only where the source is shared"
    sentences = [f"the {one['description']} {why}" for one in apart]
    volumes = [one for one in logical["volumes"] if one["offset"] < size]
    return {**logical, "volumes": volumes, "not_opened": [*logical["not_opened"], *sentences]}


@contextlib.contextmanager
def opening(settings: Settings) -> Iterator[Callable[[], SharedSource]]:
    """Opens the source in the background, since a link takes some round trips. The caller waits by calling the result,
    which raises OSError if the source cannot be opened."""
    with contextlib.ExitStack() as stack, futures.ThreadPoolExecutor(1) as pool:
        yield pool.submit(lambda: stack.enter_context(opened(settings))).result


def _cache_bytes() -> int:
    """Returns a quarter of this machine's memory, within limits."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(CACHE_BYTES_MIN, min(memory // 4, CACHE_BYTES_MAX))


def _is_here(source: str) -> bool:
    """Returns whether the source is a file or disk of this machine. A drive is not: its bytes are on nodes."""
    return "://" not in source and not source.endswith(DRIVE) and os.path.exists(path_text.to_path(source))


def _name(source: str) -> str:
    """Returns the last part of a path."""
    path = path_text.to_path(source)
    return path_text.to_text(os.path.basename(path.rstrip("/")) or path)


def identity(uri: str, name: str, size: int | None = None) -> dict[str, Any]:
    """Returns the identity of a source: name, size (that of `uri` if not given), and samples from its first byte to
    its last. Its location does not count: evidence moves."""
    with contextlib.closing(open_source(uri)) as source:
        size = source.size if size is None else size
        # In one round trip.
        taken = samples.take(size, source.pread, samples.SAMPLES)
        return {"name": name, "size": size, "samples": taken}


def is_same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Returns whether two identities may belong to the same source. An unreadable sample is ignored."""
    if (one["name"], one["size"]) != (other["name"], other["size"]):
        return False
    return samples.compared(one["samples"], other["samples"]) is not None
