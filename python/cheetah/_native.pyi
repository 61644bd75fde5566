"""The Rust part of the package; see src/."""

from os import PathLike
from typing import final

__version__: str

def credential_file() -> str | None:
    """Returns the file with the credential of this process, in PEM, if it is in a room."""

@final
class Membership:
    """A membership of a room, by the credential in a file. Its list of revoked members is kept current while the process
    runs."""

    def __new__(cls, path: str | PathLike[str]) -> Membership: ...
    def peer(self, certificate: bytes) -> Peer:
        """Returns the member with a certificate in DER. Raises `cheetah.Error` if the room has not signed it, or the
        member is revoked."""

@final
class Peer:
    """Another member of the room."""

    role: str

    def is_revoked(self) -> bool:
        """Returns whether its certificate has been revoked."""

@final
class OpenOptions:
    """The options for opening a source, always read-only. `cache` as on the command line, `prefetch` in bytes."""

    def __new__(
        cls, *, cache: str | None, prefetch: int, foresight: bool, allow_lost: bool, timeout_s: float
    ) -> OpenOptions: ...

@final
class Device:
    """An open source, read at offsets by any number of threads."""

    name: str
    size: int
    lost: list[str]
    doubts: list[str]

    def __new__(cls, source: str, options: OpenOptions) -> Device: ...
    def pread(self, offset: int, length: int) -> bytes:
        """Returns `length` bytes from `offset`, fewer only at the end."""

    def pread_into(self, offset: int, buffer: bytearray | memoryview) -> None:
        """Fills `buffer` from `offset`. The range must lie within the source."""

    def connections(self) -> list[str]:
        """Returns how the connections to its servers are protected."""

    def close(self) -> None:
        """Closes the source. Reads in progress in other threads complete."""

@final
class Share:
    """A source served over NBD on a Unix socket."""

    uri: str
    name: str
    size: int
    lost: list[str]
    doubts: list[str]

    def __new__(cls, source: str, socket: str | PathLike[str], options: OpenOptions) -> Share: ...
    def stats(self) -> dict[str, int]:
        """Returns counters."""

    def connections(self) -> list[str]:
        """Returns how the connections to the source's servers are protected."""

    def close(self) -> None:
        """Stops serving, and disconnects clients."""
