"""Where records of an NTFS volume's MFT lie in it, and resident content in them."""

import bisect
import struct
from collections.abc import Callable, Sequence

from cheetah.triage.filesystem import mft_record

Read = Callable[[int, int], bytes]
Run = tuple[int, int, int]
"""Offset in the file, offset in the volume, and length, in bytes."""
_RECORD_BYTES = (256, 1 << 16)
_NUMBER = (1 << 48) - 1
_LISTED = struct.Struct("<IHBBQQ")
"""The beginning of an entry of an `$ATTRIBUTE_LIST`: type, length, length and place of the name, first cluster of the part of the stream,
and record."""
_END_BYTES = 2
"""The bytes at the end of each sector of a record that stand in its update sequence array, and a number in their place."""


class Records:
    """The records of a volume, whose bytes `read` returns by their offset in it."""

    def __init__(self, read: Read, runs: Sequence[Run]):
        self._read = read
        self._runs = sorted(runs)
        self._starts = [run[0] for run in self._runs]
        boot = read(0, mft_record.SECTOR_BYTES)
        size = boot[64] if len(boot) > 64 else 0
        cluster = mft_record.cluster_bytes(boot)
        # Above 127, the negative exponent of a power of two.
        self._bytes = size * cluster if size < 128 else 1 << (256 - size)
        self._known = _RECORD_BYTES[0] <= self._bytes <= _RECORD_BYTES[1]

    def record(self, number: int) -> tuple[int, bytes] | None:
        """Returns the offset in the volume of a record, and its bytes as they are stored; None if it lies in several pieces, or
        nowhere. Raises OSError if it cannot be read."""
        at = number * self._bytes
        index = bisect.bisect_right(self._starts, at) - 1
        if not self._known or index < 0:
            return None
        first, place, length = self._runs[index]
        if at + self._bytes > first + length:
            return None
        raw = self._read(place + at - first, self._bytes)
        return (place + at - first, raw) if len(raw) == self._bytes and raw[:4] == b"FILE" else None


def listed(content: bytes) -> dict[tuple[int, str], int]:
    """Returns the numbers of the records in which the streams of a file begin, by type and name, according to the content of its
    `$ATTRIBUTE_LIST`."""
    records: dict[tuple[int, str], int] = {}
    at = 0
    while at + _LISTED.size <= len(content):
        kind, length, name_length, name_at, first, record = _LISTED.unpack_from(content, at)
        if length < _LISTED.size:
            break
        # The other parts of a stream say nothing of its length.
        if first == 0:
            name = content[at + name_at : at + name_at + 2 * name_length].decode("utf-16-le", "replace")
            records.setdefault((kind, name), record & _NUMBER)
        at += length
    return records


def attribute(raw: bytes, kind: int, called: str | int, size: int) -> mft_record.Attribute | None:
    """Returns the attribute of a record that has this type, name or number, and size, and with which a stream begins. The numbers of The
    Sleuth Kit are not those of the record if the file has an `$ATTRIBUTE_LIST`; its names may differ in characters that are no text."""
    for one in mft_record.attributes(mft_record.fixed_up(raw)):
        is_called = called == (one.name if isinstance(called, str) else one.number)
        if one.kind == kind and is_called and (one.resident or _first_cluster(one) == 0):
            own = _resident_bytes(one) if one.resident else one.size()
            return one if own == size else None
    return None


def base(raw: bytes) -> int:
    """Returns the number of the record that a record extends; 0 if it is one of a file."""
    return int.from_bytes(raw[32:40], "little") & _NUMBER


def _first_cluster(one: mft_record.Attribute) -> int:
    return int.from_bytes(one.record[one.start + 16 : one.start + 24], "little")


def _resident_bytes(one: mft_record.Attribute) -> int:
    return int.from_bytes(one.record[one.start + 16 : one.start + 20], "little")


def initialised_bytes(one: mft_record.Attribute) -> int:
    """Returns the number of the first bytes of non-resident content that are its own: what is behind them reads as zeros."""
    found = one.record[one.start + 56 : min(one.start + 64, one.start + one.length)]
    return int.from_bytes(found, "little") if len(found) == 8 else one.size()


def resident_runs(place: int, raw: bytes, one: mft_record.Attribute) -> list[Run]:
    """Returns the runs of resident content of a record at `place` in the volume. The last two bytes of each sector of the record stand
    in its update sequence array, so they are runs of their own."""
    begin = one.start + int.from_bytes(one.record[one.start + 20 : one.start + 22], "little")
    end = min(begin + _resident_bytes(one), one.start + one.length, len(raw))
    array, count = struct.unpack_from("<HH", raw, 4)
    runs: list[Run] = []
    at = begin
    while at < end:
        sector = at // mft_record.SECTOR_BYTES
        swapped = (sector + 1) * mft_record.SECTOR_BYTES - _END_BYTES
        has_swapped = sector + 1 < count and array + 2 * (sector + 2) <= len(raw)
        if at < swapped or not has_swapped:
            stop = min(end, swapped if has_swapped else swapped + _END_BYTES)
            runs.append((at - begin, place + at, stop - at))
        else:
            stop = min(end, swapped + _END_BYTES)
            runs.append((at - begin, place + array + 2 * (sector + 1) + at - swapped, stop - at))
        at = stop
    return runs
