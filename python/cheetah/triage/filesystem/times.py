"""Times of files that The Sleuth Kit reads wrongly, read right.

Times are seconds since 1970, before it negative. The Sleuth Kit keeps the low 32 bits of ext's times and knows neither
their sign nor the bits that ext4 adds; of NTFS's times it drops those outside 1970 to 2106; it ignores that exFAT records
the distance from UTC.
"""

import struct
from collections.abc import Sequence

import pytsk3

from cheetah.triage.filesystem import exfat, ext_inodes
from cheetah.triage.filesystem.metadata import Metadata
from cheetah.triage.filesystem.mft_file_name import seconds
from cheetah.triage.reading.image import TskImage

Times = tuple[int, int, int, int]
"""Access, modification, change, birth."""
_STANDARD_INFORMATION = 16
_U32 = 1 << 32
_SIGN = 1 << 31


class FileTimes:
    """The times of files as The Sleuth Kit gives them, which are right for file systems that have no correction."""

    def of(self, file: pytsk3.File, meta: pytsk3.TSK_FS_META, attributes: Sequence[tuple[int, int]] = ()) -> Times:
        """Returns the times of a file; `attributes` are those of NTFS, as type and id. Raises OSError if they cannot be
        read."""
        return meta.atime, meta.mtime, meta.ctime, meta.crtime


class Ufs1Times(FileTimes):
    """UFS1 keeps signed numbers of 32 bits."""

    def of(self, file: pytsk3.File, meta: pytsk3.TSK_FS_META, attributes: Sequence[tuple[int, int]] = ()) -> Times:
        atime, mtime, ctime, crtime = (_signed(one) for one in super().of(file, meta))
        return atime, mtime, ctime, crtime


class NtfsTimes(FileTimes):
    """The Sleuth Kit gives 0 for a time outside 1970 to 2106, as for one that is not set."""

    def of(self, file: pytsk3.File, meta: pytsk3.TSK_FS_META, attributes: Sequence[tuple[int, int]] = ()) -> Times:
        given = super().of(file, meta)
        number = next((number for kind, number in attributes if kind == _STANDARD_INFORMATION), None)
        if all(given) or number is None:
            return given
        content = file.read_random(0, 32, pytsk3.TSK_FS_ATTR_TYPE_NTFS_SI, number)
        if len(content) < 32:
            return given
        birth, modified, changed, accessed = map(seconds, struct.unpack("<4Q", content))
        return accessed, modified, changed, birth


class ExtTimes(FileTimes):
    """ext keeps signed numbers of 32 bits. Larger inodes have two more bits, which count in units of 2^32 seconds."""

    _AT = (8, 16, 12, 144)
    """Access, modification, change, birth."""
    _EXTRA_AT = (140, 136, 132, 148)

    def __init__(self, metadata: Metadata):
        self.inodes = ext_inodes.ExtInodes(metadata)

    def of(self, file: pytsk3.File, meta: pytsk3.TSK_FS_META, attributes: Sequence[tuple[int, int]] = ()) -> Times:
        given = super().of(file, meta)
        if not self.inodes.are_large or not any(given):
            atime, mtime, ctime, crtime = map(_signed, given)
            return atime, mtime, ctime, crtime
        raw = self.inodes.raw(meta.addr)
        held = ext_inodes.SMALL_BYTES + struct.unpack_from("<H", raw, ext_inodes.SMALL_BYTES)[0]
        atime, mtime, ctime, crtime = (
            self._time(raw, at, extra_at, held, one)
            for at, extra_at, one in zip(self._AT, self._EXTRA_AT, given, strict=True)
        )
        return atime, mtime, ctime, crtime

    @staticmethod
    def _time(raw: bytes, at: int, extra_at: int, held: int, given: int) -> int:
        (low,) = struct.unpack_from("<i", raw, at)
        # The Sleuth Kit and this look at the same inode, or neither is believed.
        if low & (_U32 - 1) != given & (_U32 - 1) or at + 4 > held:
            return _signed(given)
        epoch = struct.unpack_from("<I", raw, extra_at)[0] & 3 if extra_at + 4 <= held else 0
        return int(low) + (epoch << 32)


class ExfatTimes(FileTimes):
    """exFAT records local times, and with each whether, and by how many quarters of an hour, it differs from UTC."""

    _DISTANCES_AT = (24, 23, None, 22)
    """Access, modification, change (which exFAT does not have), birth."""

    def __init__(self, metadata: Metadata):
        self._metadata = metadata
        self._layout = exfat.Layout.of(metadata.bytes_at(0, 512))

    def of(self, file: pytsk3.File, meta: pytsk3.TSK_FS_META, attributes: Sequence[tuple[int, int]] = ()) -> Times:
        given = super().of(file, meta)
        place = self._layout.entry(meta.addr) if self._layout is not None else None
        if place is None or not any(given):
            return given
        entry = self._metadata.bytes_at(place, exfat.ENTRY_BYTES)
        if len(entry) < exfat.ENTRY_BYTES or not exfat.is_file(entry):
            return given
        atime, mtime, ctime, crtime = (
            one if at is None or not one else one - _distance_s(entry[at])
            for one, at in zip(given, self._DISTANCES_AT, strict=True)
        )
        return atime, mtime, ctime, crtime


def of(file_system: pytsk3.FS_Info, image: TskImage, start: int) -> FileTimes:
    """Returns the reader of times for a file system at `start` of an image. Raises OSError if it cannot be read."""
    kind = int(file_system.info.ftype)
    if kind == int(pytsk3.TSK_FS_TYPE_NTFS):
        return NtfsTimes()
    if kind in (int(pytsk3.TSK_FS_TYPE_FFS1), int(pytsk3.TSK_FS_TYPE_FFS1B)):
        return Ufs1Times()
    if kind in (int(pytsk3.TSK_FS_TYPE_EXT2), int(pytsk3.TSK_FS_TYPE_EXT3), int(pytsk3.TSK_FS_TYPE_EXT4)):
        return ExtTimes(Metadata(image, start))
    if kind == int(pytsk3.TSK_FS_TYPE_EXFAT):
        return ExfatTimes(Metadata(image, start))
    return FileTimes()


def _signed(given: int) -> int:
    return given - _U32 if _SIGN <= given < _U32 else given


def _distance_s(recorded: int) -> int:
    """Returns the distance from UTC that a byte records; 0 if it records none."""
    quarters = recorded & 0x7F
    return 900 * (quarters - 128 if quarters >= 64 else quarters) if recorded & 0x80 else 0
