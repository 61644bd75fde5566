"""The Rust part of the package; see src/."""

from collections.abc import Callable
from os import PathLike
from typing import Protocol, final

__version__: str

def credential_file() -> str | None:
    """Returns the file with the credential of this process, in PEM, if it is in a room."""

@final
class CustodyLog:
    """A custody log, open for appending by this process alone. Its records are signed with the user's own key."""

    key: str

    def __new__(cls, path: str | PathLike[str]) -> CustodyLog:
        """Opens or creates the log. Raises `cheetah.Error` if it cannot be, or was tampered with."""

    def append(self, event: str) -> str:
        """Appends an event, in its JSON form, and flushes it. Returns the SHA-256 of its line."""

    def close(self) -> None:
        """Closes the log, so that another process may write it."""

def custody_state(path: str | PathLike[str]) -> tuple[str | None, str | None]:
    """Returns the source and the case of the last `started` record of a log, as JSON."""

def path_to_text(path: str) -> str:
    """Returns the text of a path, as `cheetah.path_text` describes it."""

def text_to_path(text: str) -> str:
    """Returns the path of such a text."""

def parse_size(text: str) -> int:
    """Returns the bytes of a size as the command line takes it: `64KiB`, `1.5G`, `12GB`. Raises ValueError, whose text is
    a sentence, for anything else."""

def read_partition_tables(
    pread: Callable[[int, int], bytes], size: int, sector_size: int | None = None, given: int | None = None
) -> PartitionTables:
    """Reads the partition tables of a source of `size` bytes. `pread` returns bytes at an offset; `sector_size` is the size
    of a sector that the source records, `given` the one that the user gives, which alone is then tried."""

def identify(
    pread: Callable[[int, int], bytes], size: int, start: int, length: int
) -> tuple[list[tuple[str, str]], str | None]:
    """Returns the formats whose signatures a volume has, each as its name and its family ("" if triage does not list
    it), and why a part of the volume could not be examined, if so."""

@final
class Partition:
    """A partition. `start`, `length` (within the source) and `recorded_length` (of the table) are in bytes."""

    number: int
    start: int
    length: int
    recorded_length: int
    description: str
    sector_size: int

@final
class PartitionTables:
    """The partitions of the table in use; other places that hold known formats; partitions beyond the end of the source;
    sentences about defects and ambiguities, each with whether partitions may be missing."""

    partitions: list[Partition]
    others: list[Partition]
    beyond: list[Partition]
    remarks: list[tuple[str, bool]]

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
    """The options for opening a source, always read-only. `cache` as on the command line, `prefetch` in bytes. The key
    files in `unlock` are read at once; an empty list leaves encrypted volumes as they are. `beside` names other sources,
    `shadow_copies` the shadow copies that are shown as volumes; an empty list asks for a list of them."""

    def __new__(
        cls,
        *,
        cache: str | None,
        prefetch: int,
        foresight: bool,
        allow_lost: bool,
        timeout_s: float,
        unlock: list[str],
        beside: list[str],
        shadow_copies: list[str] | None,
    ) -> OpenOptions: ...

@final
class Device:
    """An open source, read at offsets by any number of threads."""

    name: str
    size: int
    end: int
    """The size with the logical volumes behind the end."""
    sector_size: int | None
    lost: list[str]
    unlocked: str | None
    """What the keys did, as JSON: see `cheetah.Device.unlocked`."""
    locked: list[str]
    """What the keys did not do, a sentence each."""
    logical: str
    """The logical volumes, as JSON: see `cheetah.Device.logical`."""

    def __new__(cls, source: str, options: OpenOptions) -> Device: ...
    def pread(self, offset: int, length: int) -> bytes:
        """Returns `length` bytes from `offset`, fewer only at the end."""

    def pread_into(self, offset: int, buffer: bytearray | memoryview) -> None:
        """Fills `buffer` from `offset`. The range must lie within the source."""

    def connections(self) -> list[str]:
        """Returns how the connections to its servers are protected."""

    def doubts(self) -> list[str]:
        """Looks for doubts about the source, over its link if it has one, and returns them."""

    def parts(self, part_bytes: int) -> list[tuple[int, int, list[str]]]:
        """Returns the start, the length and the hosts of each part."""

    def search(self, source: str, wanted: Wanted, at_nodes: bool, lend_key: list[str], workers: int | None) -> Hits:
        """Begins to search it. `source` is how the user calls it. `lend_key` names nodes that are lent the key of a sealed drive."""

    def close(self) -> None:
        """Closes the source. Reads in progress in other threads complete."""

class Wanted(Protocol):
    """What is searched for, as on the command line."""

    @property
    def words(self) -> list[str]: ...
    @property
    def regexes(self) -> list[str]: ...
    @property
    def kinds(self) -> list[str]: ...
    @property
    def inside(self) -> list[str]: ...
    @property
    def known(self) -> list[str]: ...
    @property
    def blocks(self) -> str | None: ...
    @property
    def atoms(self) -> list[str]: ...
    @property
    def ignore_atom_case(self) -> bool: ...
    @property
    def encodings(self) -> list[str]: ...
    @property
    def ignore_case(self) -> bool: ...
    @property
    def context_bytes(self) -> int: ...

def read_words(list: bytes) -> list[str]:
    """Returns the words in a list, which is the content of a file."""

def split_rules(texts: list[str]) -> tuple[list[tuple[bytes, bool]], list[tuple[int, str | None, str]]]:
    """Divides YARA rules in files, whose texts these are. Returns the atoms, each as its bytes and whether the case of letters is ignored,
    and the rules that have none, each as the number of its file, its name (None stands for all rules of the file), and why: "condition",
    "strings", "too-many" or "not-parsed"."""

def rules_need_whole_files(texts: list[str]) -> bool:
    """Returns whether the YARA rules in files, whose texts these are, may match a file and no piece of it, or the other way round. Pieces
    overlap by 64 KiB."""

@final
class Hit:
    """A place where a pattern matches. `offset` and `length` are in bytes. Of a hit inside compressed data, `offset` is where these begin,
    and `inside` the way from there. `node` and `instance` name the node that found it; None if this process did."""

    offset: int
    length: int
    pattern: str
    encoding: str
    text: str
    context: str
    inside: str | None
    node: str | None
    instance: str | None

@final
class Hits:
    """A search under way."""

    # The links and special files among the known files, which are left out.
    known_left_out: int

    def next(self) -> list[Hit] | None:
        """Returns the hits of the next part of the source that has any, and None at its end."""

    def coverage(
        self,
    ) -> tuple[
        int,
        int,
        int,
        list[tuple[int, int, str, str]],
        list[tuple[str, str, list[str], int]],
        str | None,
        tuple[int, int, int, int, int, int, int, int, bool] | None,
        tuple[int, list[tuple[int, int, str]]],
    ]:
        """Returns the bytes that were searched, that cannot be read, and that were not searched for another reason; the gaps;
        the patterns; what was searched where, as JSON, if nodes were asked; what became of compressed data, if these are
        searched; and the bytes that were searched only partly, with their ranges."""

    def known(self) -> tuple[list[tuple[int, int, str, int]], list[tuple[str, int, int]], int] | None:
        """Returns the runs of known files, the files, and the number of blocks found alone; None if there are no known files, or the
        source was not searched to its end yet."""

    def atoms(self) -> tuple[list[int], list[tuple[int, int]], int] | None:
        """Returns the numbers of the blocks that have a byte of an atom, offset and length of the ranges that were not searched, and the
        power of two that is the size of a block: once, and None if there are no atoms, or the source was not searched to its end yet."""

@final
class Share:
    """A source served over NBD on a Unix socket."""

    uri: str
    name: str
    size: int
    sector_size: int | None
    lost: list[str]
    unlocked: str | None
    """What the keys did, as JSON: see `cheetah.Device.unlocked`."""
    locked: list[str]
    """What the keys did not do, a sentence each."""
    logical: str
    """The logical volumes, as JSON: see `cheetah.Device.logical`."""

    def __new__(cls, source: str, socket: str | PathLike[str], options: OpenOptions) -> Share: ...
    def stats(self) -> dict[str, int]:
        """Returns counters."""

    def connections(self) -> list[str]:
        """Returns how the connections to the source's servers are protected."""

    def doubts(self) -> list[str]:
        """Looks for doubts about the source, over its link if it has one, and returns them."""

    def close(self) -> None:
        """Stops serving, and disconnects clients."""
