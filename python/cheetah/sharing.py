"""One process opens a source, and others read it there."""

import os
import shutil
import tempfile
import weakref
from pathlib import Path
from types import TracebackType
from typing import Self

from cheetah import _native
from cheetah.how import how, settled

#: What is kept of what crosses a link, unless told otherwise: in memory, the command line's default.
CACHE = "memory"


class Share:
    """A source that this process has open and serves over NBD, on a Unix socket in a directory of its own.

    `uri` is what `cheetah.open` takes in other processes of this user; `name`, `size` and `lost` are the source's. It
    ends, and the directory goes, with `close`, at the end of a `with`, or when this process ends in good order.
    """

    def __init__(self, source: str, how_to_open: _native.How):
        # The directory is 0700, so the socket is this user's.
        directory = Path(tempfile.mkdtemp(prefix="cheetah-share-"))
        try:
            self._native = _native.Share(source, directory / "socket", how_to_open)
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        self.source = source
        self.uri = self._native.uri
        self.name = self._native.name
        self.size = self._native.size
        self.lost = self._native.lost
        self._end = weakref.finalize(self, _end, self._native, directory, os.getpid())

    def stats(self) -> dict[str, int]:
        """Counters, which only grow: of requests and of bytes.

        `served_…` is what clients asked for. `source_…` is what was read of the source, below all that keeps or fetches
        ahead; a drive has none, since it is many sources. `cache_…` is there where what crosses a link is kept, and
        `prefetch_…` where anything is read ahead. `foreseen_files` are those whose place foresight knows.
        """
        return self._native.stats()

    def close(self) -> None:
        """Serves it no longer: clients are cut, and the source is let go of."""
        self._end()

    @property
    def closed(self) -> bool:
        """Whether it is over."""
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
    """Ends a share; of what a forked process inherited of one, nothing."""
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
) -> Share:
    """Opens a source as `cheetah.open` does, and serves it to other processes: this process is the hub.

    Over a slow link that is how several processes read: what crosses it is kept here once for all of them (`cache` as
    in `cheetah.open`; 256 MiB of memory unless told, 0 for nothing), and with `foresight` what tools will read of the
    file systems there is fetched before anybody asks.

    Raises `cheetah.Error` where the source cannot be opened, or the socket not be made.
    """
    source = settled(source)
    cache = CACHE if cache is None else cache
    return Share(
        source,
        how(source, cache=cache, prefetch=prefetch, timeout_s=timeout_s, allow_lost=allow_lost, foresight=foresight),
    )
