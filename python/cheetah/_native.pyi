"""What is done in Rust: see src/."""

from os import PathLike
from typing import final

__version__: str

@final
class How:
    """How to open a source: always for reading. `cache` as on the command line, `prefetch` in bytes."""

    def __new__(cls, *, cache: str | None, prefetch: int, foresight: bool, allow_lost: bool, timeout_s: float) -> How: ...

@final
class Device:
    """An open source, read at offsets. Any number of threads may."""

    name: str
    size: int
    lost: list[str]

    def __new__(cls, source: str, how: How) -> Device: ...
    def pread(self, offset: int, length: int) -> bytes:
        """`length` bytes from `offset`; fewer only at the end."""

    def pread_into(self, offset: int, buffer: bytearray | memoryview) -> None:
        """Fills all of `buffer`, which must end before the source does, from `offset`."""

    def close(self) -> None:
        """Lets go of it. Reads under way in other threads go on to their end."""

@final
class Share:
    """An open source that is served over NBD, on a Unix socket."""

    uri: str
    name: str
    size: int
    lost: list[str]

    def __new__(cls, source: str, socket: str | PathLike[str], how: How) -> Share: ...
    def stats(self) -> dict[str, int]:
        """Counters."""

    def close(self) -> None:
        """Serves it no longer: clients are cut."""
