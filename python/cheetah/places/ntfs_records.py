"""Where records of an NTFS volume's MFT lie in it, and resident content in them."""

import bisect
import struct
from collections.abc import Callable, Sequence

from cheetah.triage.filesystem import mft_record

Read = Callable[[int, int], bytes]
Run = tuple[int, int, int]
"""Offset in the file, offset in the volume, and length, in bytes."""
_RECORD_BYTES = (256, 1 << 16)
_END_BYTES = 2
"""The bytes at the end of each sector of a record that stand in its update sequence array, and a number in their place."""


class Records:
    """The records of a volume, whose bytes `read` returns by their offset in it."""

    def __init__(self, read: Read, runs: Sequence[Run]):
        self._read = read
        self._runs = sorted(runs)
        self._starts = [run[0] for run in self._runs]
        boot = read(0, mft_record.SECTOR_BYTES)
        self._bytes = mft_record.record_bytes(boot)
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
        return (place + at - first, raw) if len(raw) == self._bytes and mft_record.is_record(raw) else None


def listed(content: bytes) -> dict[tuple[int, str], int]:
    """Returns the numbers of the records in which the streams of a file begin, by type and name, according to the content of its
    `$ATTRIBUTE_LIST`."""
    records: dict[tuple[int, str], int] = {}
    for one in mft_record.listed(content):
        # The other parts of a stream say nothing of its length.
        if one.first_cluster == 0:
            records.setdefault((one.kind, one.name), one.record)
    return records


def attribute(raw: bytes, kind: int, called: str | int, size: int) -> mft_record.Attribute | None:
    """Returns the attribute of a record that has this type, name or number, and size, and with which a stream begins. The numbers of The
    Sleuth Kit are not those of the record if the file has an `$ATTRIBUTE_LIST`; its names may differ in characters that are no text."""
    for one in mft_record.attributes(mft_record.fixed_up(raw)):
        is_called = called == (one.name if isinstance(called, str) else one.number)
        if one.kind == kind and is_called and (one.resident or one.first_cluster == 0):
            own = one.resident_bytes if one.resident else one.size()
            return one if own == size else None
    return None


def resident_runs(place: int, raw: bytes, one: mft_record.Attribute) -> list[Run]:
    """Returns the runs of resident content of a record at `place` in the volume. The last two bytes of each sector of the record stand
    in its update sequence array, so they are runs of their own."""
    begin = one.resident_at
    end = min(begin + one.resident_bytes, one.start + one.length, len(raw))
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
