"""Parses the records of an NTFS volume's MFT, and its boot sector: for fields that pytsk3 does not return, and before
The Sleuth Kit has read the whole MFT.

No input raises an exception.
"""

import dataclasses
import struct
from collections.abc import Iterator

FILE_NAME, DATA, INDEX_ROOT = 48, 128, 144
"""Attribute types."""
SECTOR_BYTES = 512
_END = 0xFFFFFFFF
_HEADER_BYTES = 24
_NAME_BYTES = 66
"""The bytes before the name in a `FILE_NAME`."""
_DOS = 2
_RUNS_MAX = 4096
_NUMBER = (1 << 48) - 1
_SIGN = b"FILE"
_RECORD_BYTES_AT = 64
"""The place of the size of a record in the boot sector."""
_LISTED = struct.Struct("<IHBBQQ")
"""The beginning of an entry of an `$ATTRIBUTE_LIST`: type, length, length and place of the name, first cluster of the part of the stream,
and record."""


def cluster_bytes(boot: bytes) -> int:
    """Returns the cluster size in bytes, according to the boot sector."""
    sector, per_cluster = struct.unpack_from("<HB", boot.ljust(SECTOR_BYTES, b"\0"), 11)
    # Above 128, the negative exponent of a power of two.
    return int(sector * per_cluster if per_cluster <= 128 else sector << (256 - per_cluster))


def record_bytes(boot: bytes) -> int:
    """Returns the size of a record in bytes, according to the boot sector. Any number may stand there."""
    size = boot.ljust(SECTOR_BYTES, b"\0")[_RECORD_BYTES_AT]
    # Above 127, the negative exponent of a power of two.
    return size * cluster_bytes(boot) if size < 128 else 1 << (256 - size)


def is_record(raw: bytes) -> bool:
    """Returns whether bytes begin as a record does."""
    return raw[: len(_SIGN)] == _SIGN


def base(raw: bytes) -> int:
    """Returns the number of the record that a record extends; 0 if it is one of a file."""
    return int.from_bytes(raw[32:40], "little") & _NUMBER


def fixed_up(record: bytes) -> bytes:
    """Returns the record with its update sequence array applied."""
    whole = bytearray(record)
    offset, count = struct.unpack_from("<HH", record.ljust(8, b"\0"), 4)
    for sector in range(1, count):
        end = sector * SECTOR_BYTES
        if end <= len(whole) and offset + 2 * sector + 2 <= len(whole):
            whole[end - 2 : end] = record[offset + 2 * sector : offset + 2 * sector + 2]
    return bytes(whole)


@dataclasses.dataclass(frozen=True)
class Attribute:
    """An attribute at `start` in its record, of `length` bytes."""

    record: bytes
    start: int
    length: int
    kind: int

    @property
    def number(self) -> int:
        """The attribute's id, unique among its type."""
        return self._short(14)

    @property
    def resident(self) -> bool:
        """Whether its content is in the record itself."""
        return self.record[self.start + 8] == 0

    @property
    def name(self) -> str:
        """The name of the stream or index, or ""."""
        start = self.start + self._short(10)
        return self.record[start : start + 2 * self.record[self.start + 9]].decode("utf-16-le", "replace")

    def content(self, length: int) -> bytes:
        """Returns the first bytes of resident content; fewer at the end of the record."""
        return self.record[self.resident_at : self.resident_at + length]

    def runs(self) -> list[tuple[int, int]]:
        """Returns the runs of non-resident content, as first cluster and count, up to a hole or an invalid run."""
        at, end = self.start + self._short(32), self.start + self.length
        runs: list[tuple[int, int]] = []
        cluster = 0
        while at < end and self.record[at] and len(runs) < _RUNS_MAX:
            count_bytes, step_bytes = self.record[at] & 15, self.record[at] >> 4
            at += 1
            if not (1 <= count_bytes <= 8 and 1 <= step_bytes <= 8 and at + count_bytes + step_bytes <= end):
                break
            count = int.from_bytes(self.record[at : at + count_bytes], "little")
            at += count_bytes
            cluster += int.from_bytes(self.record[at : at + step_bytes], "little", signed=True)
            at += step_bytes
            if count == 0 or cluster < 0:
                break
            runs.append((cluster, count))
        return runs

    def size(self) -> int:
        """Returns the size of non-resident content in bytes."""
        found = self.record[self.start + 48 : min(self.start + 56, self.start + self.length)]
        return int.from_bytes(found, "little") if len(found) == 8 else 0

    def initialised_bytes(self) -> int:
        """Returns the number of the first bytes of non-resident content that are its own: what is behind them reads as zeros."""
        found = self.record[self.start + 56 : min(self.start + 64, self.start + self.length)]
        return int.from_bytes(found, "little") if len(found) == 8 else self.size()

    @property
    def first_cluster(self) -> int:
        """The number in its stream of the first cluster of non-resident content: 0 unless other records have parts before it."""
        return self._number(16, 8)

    @property
    def resident_bytes(self) -> int:
        """The size that it gives for resident content."""
        return self._number(16, 4)

    @property
    def resident_at(self) -> int:
        """The place of resident content in the record."""
        return self.start + self._short(20)

    def _short(self, place: int) -> int:
        return self._number(place, 2)

    def _number(self, place: int, length: int) -> int:
        found = self.record[self.start + place : self.start + place + length]
        return int.from_bytes(found, "little")


def attributes(record: bytes) -> Iterator[Attribute]:
    """Yields the valid attributes of a record after `fixed_up`."""
    offset = int.from_bytes(record[20:22], "little")
    while offset + _HEADER_BYTES <= len(record):
        kind, length = struct.unpack_from("<II", record, offset)
        if kind == _END or length == 0 or offset + length > len(record):
            break
        yield Attribute(record, offset, length, kind)
        offset += length


@dataclasses.dataclass(frozen=True)
class Listed:
    """An entry of an `$ATTRIBUTE_LIST`: a part of a stream."""

    kind: int
    name: str
    first_cluster: int
    """The number in the stream of the first cluster of the part."""
    record: int
    """The number of the record that has the part."""


def listed(content: bytes) -> Iterator[Listed]:
    """Yields the valid entries of an `$ATTRIBUTE_LIST`, whose content this is."""
    at = 0
    while at + _LISTED.size <= len(content):
        kind, length, name_length, name_at, first_cluster, record = _LISTED.unpack_from(content, at)
        if length < _LISTED.size:
            break
        name = content[at + name_at : at + name_at + 2 * name_length].decode("utf-16-le", "replace")
        yield Listed(kind, name, first_cluster, record & _NUMBER)
        at += length


@dataclasses.dataclass(frozen=True)
class Name:
    """A name of a file in a folder."""

    text: str
    parent: int
    """The number of the folder's record."""
    parent_sequence: int


@dataclasses.dataclass(frozen=True)
class Record:
    """The content of a file's record."""

    sequence: int
    in_use: bool
    folder: bool
    base: int
    """The number of its base record; 0 if it is one."""
    names: tuple[Name, ...]
    """Without DOS names."""
    stream: Attribute | None
    """The attribute that represents the file in a listing: its data, or a folder's index."""


def parse(raw: bytes) -> Record | None:
    """Parses a record as stored on disk; returns None if it is invalid."""
    if not is_record(raw) or len(raw) < 2 * _HEADER_BYTES:
        return None
    record = fixed_up(raw)
    sequence, flags = struct.unpack_from("<H4xH", record, 16)
    found, stream = [], None
    kind, called = (INDEX_ROOT, "$I30") if flags & 2 else (DATA, "")
    for one in attributes(record):
        if one.kind == FILE_NAME and one.resident and (name := _name(one)) is not None:
            found.append(name)
        elif stream is None and one.kind == kind and one.name == called:
            stream = one
    return Record(sequence, bool(flags & 1), bool(flags & 2), base(record), tuple(found), stream)


def _name(attribute: Attribute) -> Name | None:
    content = attribute.content(_NAME_BYTES + 2 * 255)
    if len(content) < _NAME_BYTES or content[65] == _DOS:
        return None
    text = content[_NAME_BYTES : _NAME_BYTES + 2 * content[64]]
    parent = struct.unpack_from("<Q", content)[0]
    return Name(text.decode("utf-16-le", "replace"), parent & _NUMBER, parent >> 48)
