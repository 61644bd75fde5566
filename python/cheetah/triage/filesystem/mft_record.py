"""The records of an NTFS volume's MFT, and its boot sector, taken apart by hand: for what pytsk3 does not hand out, and
for what is wanted before The Sleuth Kit has read them all.

Whatever the bytes are, there is an answer, and no exception.
"""

import dataclasses
import struct
from collections.abc import Iterator

FILE_NAME, DATA, INDEX_ROOT = 48, 128, 144
"""Types of attributes."""
SECTOR_BYTES = 512
_END = 0xFFFFFFFF
_HEADER_BYTES = 24
_NAME_BYTES = 66
"""What is before the name in a `FILE_NAME`."""
_DOS = 2
_RUNS_MAX = 4096
_NUMBER = (1 << 48) - 1


def cluster_bytes(boot: bytes) -> int:
    """How large a volume's clusters are, in bytes, as its boot sector says."""
    sector, per_cluster = struct.unpack_from("<HB", boot.ljust(SECTOR_BYTES, b"\0"), 11)
    # Above 128 it is the negative of a power of two.
    return int(sector * per_cluster if per_cluster <= 128 else sector << (256 - per_cluster))


def fixed_up(record: bytes) -> bytes:
    """The record with the last two bytes of each of its sectors put back."""
    whole = bytearray(record)
    offset, count = struct.unpack_from("<HH", record.ljust(8, b"\0"), 4)
    for sector in range(1, count):
        end = sector * SECTOR_BYTES
        if end <= len(whole) and offset + 2 * sector + 2 <= len(whole):
            whole[end - 2 : end] = record[offset + 2 * sector : offset + 2 * sector + 2]
    return bytes(whole)


@dataclasses.dataclass(frozen=True)
class Attribute:
    """An attribute of a record, which is at `start` in it and takes `length` bytes."""

    record: bytes
    start: int
    length: int
    kind: int

    @property
    def number(self) -> int:
        """What tells it from others of its kind."""
        return self._short(14)

    @property
    def resident(self) -> bool:
        """Whether its content is in the record itself."""
        return self.record[self.start + 8] == 0

    @property
    def name(self) -> str:
        """What the stream or index is called, "" if nothing."""
        start = self.start + self._short(10)
        return self.record[start : start + 2 * self.record[self.start + 9]].decode("utf-16-le", "replace")

    def content(self, length: int) -> bytes:
        """The first bytes of its content, where that is resident; fewer where the record ends."""
        start = self.start + self._short(20)
        return self.record[start : start + length]

    def runs(self) -> list[tuple[int, int]]:
        """Where the content is, where it is not resident: first cluster and how many, up to a hole or to what makes no
        sense."""
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
        """Bytes of content, where that is not resident."""
        found = self.record[self.start + 48 : min(self.start + 56, self.start + self.length)]
        return int.from_bytes(found, "little") if len(found) == 8 else 0

    def _short(self, place: int) -> int:
        found = self.record[self.start + place : self.start + place + 2]
        return int.from_bytes(found, "little")


def attributes(record: bytes) -> Iterator[Attribute]:
    """The attributes of a record that is fixed up, as far as they make sense."""
    offset = int.from_bytes(record[20:22], "little")
    while offset + _HEADER_BYTES <= len(record):
        kind, length = struct.unpack_from("<II", record, offset)
        if kind == _END or length == 0 or offset + length > len(record):
            break
        yield Attribute(record, offset, length, kind)
        offset += length


@dataclasses.dataclass(frozen=True)
class Name:
    """A name of a file: what it is called in which folder."""

    text: str
    parent: int
    """The number of the folder's record."""
    parent_sequence: int


@dataclasses.dataclass(frozen=True)
class Record:
    """What a record says of its file."""

    sequence: int
    in_use: bool
    folder: bool
    base: int
    """The number of the record that it goes on from; 0 if it begins a file."""
    names: tuple[Name, ...]
    """DOS names left out."""
    stream: Attribute | None
    """What a listing shows the file by: its content, or a folder's index."""


def parse(raw: bytes) -> Record | None:
    """A record as it is stored; None where there is none."""
    if raw[:4] != b"FILE" or len(raw) < 2 * _HEADER_BYTES:
        return None
    record = fixed_up(raw)
    sequence, flags = struct.unpack_from("<H4xH", record, 16)
    base = struct.unpack_from("<Q", record, 32)[0] & _NUMBER
    found, stream = [], None
    kind, called = (INDEX_ROOT, "$I30") if flags & 2 else (DATA, "")
    for one in attributes(record):
        if one.kind == FILE_NAME and one.resident and (name := _name(one)) is not None:
            found.append(name)
        elif stream is None and one.kind == kind and one.name == called:
            stream = one
    return Record(sequence, bool(flags & 1), bool(flags & 2), base, tuple(found), stream)


def _name(attribute: Attribute) -> Name | None:
    content = attribute.content(_NAME_BYTES + 2 * 255)
    if len(content) < _NAME_BYTES or content[65] == _DOS:
        return None
    text = content[_NAME_BYTES : _NAME_BYTES + 2 * content[64]]
    parent = struct.unpack_from("<Q", content)[0]
    return Name(text.decode("utf-16-le", "replace"), parent & _NUMBER, parent >> 48)
