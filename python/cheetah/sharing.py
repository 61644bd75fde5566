"""Sharing a source: one process opens it, others on this machine read it there."""

import os
import shutil
import tempfile
import weakref
from pathlib import Path
from types import TracebackType
from typing import Self

from cheetah import _native
from cheetah.open_options import (
    KeyFiles,
    Names,
    Sources,
    absolute_source,
    absolute_sources,
    key_files,
    open_options,
    parsed,
    parsed_logical,
    several,
)

# The default cache of a shared source, as on the command line.
CACHE = "memory"


class Share:
    """A source that this process serves over NBD, on a Unix socket in a directory of its own.

    Other processes of this user pass `uri` to `cheetah.open`; `name`, `size`, `sector_size`, `lost`, `unlocked`, `locked`
    and `logical` are the source's, as of `cheetah.Device`; what `uri` opens is longer if logical volumes lie behind the end. The share ends, and its directory is removed, by `close`, at the end of a `with`, or
    when this process exits normally.
    """

    def __init__(self, source: str, options: _native.OpenOptions):
        # The directory has mode 0700, so only this user can connect.
        directory = Path(tempfile.mkdtemp(prefix="cheetah-share-"))
        try:
            self._native = _native.Share(source, directory / "socket", options)
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        self.source = source
        self.uri = self._native.uri
        self.name = self._native.name
        self.size = self._native.size
        self.sector_size = self._native.sector_size
        self.lost = self._native.lost
        self.unlocked = parsed(self._native.unlocked)
        self.locked = self._native.locked
        self.logical = parsed_logical(self._native.logical)
        self._doubts: list[str] | None = None
        self._end = weakref.finalize(self, _end, self._native, directory, os.getpid())

    def stats(self) -> dict[str, int]:
        """Returns counters of requests and bytes, which only grow.

        `served_…` counts what clients asked for. `source_…` counts what was read from the source, below caches and
        read-ahead; a drive has none, since it is many sources. `cache_…` is present if there is a cache, `prefetch_…`
        if there is read-ahead. `foreseen_files` is the number of files whose location is known.
        """
        return self._native.stats()

    def connections(self) -> list[str]:
        """Returns how the connections to the source are protected: see `cheetah.Device.connections`."""
        return self._native.connections()

    @property
    def doubts(self) -> list[str]:
        """Sentences about what is in doubt: see `cheetah.Device.doubts`. The first use reads the source's tables."""
        if self._doubts is None:
            self._doubts = self._native.doubts()
        return self._doubts

    def close(self) -> None:
        """Stops serving: disconnects clients and closes the source."""
        self._end()

    @property
    def closed(self) -> bool:
        """Whether the share has been closed."""
        return not self._end.alive

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<cheetah.Share {self.source!r} at {self.uri}{', closed' if self.closed else ''}>"


def _end(native: _native.Share, directory: Path, pid: int) -> None:
    """Ends a share, except in a process that inherited it by forking."""
    if os.getpid() == pid:
        try:
            native.close()
        finally:
            shutil.rmtree(directory, ignore_errors=True)


def share(
    source: str | os.PathLike[str],
    *,
    cache: int | str | None = None,
    foresight: bool = True,
    prefetch: int | None = None,
    timeout_s: float = 10,
    allow_lost: bool = False,
    unlock: KeyFiles = (),
    beside: Sources = (),
    shadow_copies: Names | None = None,
) -> Share:
    """Opens a source as `cheetah.open` does, and serves it to other processes.

    Over a slow link, several processes read this way: data is cached here once for all of them (`cache` as in
    `cheetah.open`; 256 MiB of memory by default, 0 for none). With `foresight`, file-system metadata and file
    contents that tools are likely to read are fetched ahead of the reads. `unlock` is as for `cheetah.open`: other
    processes read the content of opened volumes, and get no key. So are `beside` and `shadow_copies`.

    Raises `cheetah.Error` if the source cannot be opened or the socket cannot be created.
    """
    source = absolute_source(source)
    cache = CACHE if cache is None else cache
    return Share(
        source,
        open_options(
            source,
            cache=cache,
            prefetch=prefetch,
            timeout_s=timeout_s,
            allow_lost=allow_lost,
            foresight=foresight,
            unlock=key_files(unlock),
            beside=absolute_sources(beside),
            shadow_copies=several(shadow_copies),
        ),
    )
