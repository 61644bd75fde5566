"""Where the content of files begins, as far as a listing can say it without further reads.

It is only used to place work near the bytes, so one place for each file is enough: that of its first run. NTFS and ext4 with
large inodes name it in what a listing reads anyway.
"""

import contextlib
from itertools import islice

import pytsk3

from cheetah.triage.filesystem import ext_inodes, runs
from cheetah.triage.filesystem.times import ExtTimes, FileTimes, NtfsTimes
from cheetah.triage.task import Volume

RUNS_MAX = 16
"""The number of runs of a stream of NTFS that are looked at: a sparse one may begin with many holes."""
_META_REGULAR = 1


class Places:
    """The places of a file system that names none."""

    def of_file(self, meta: pytsk3.TSK_FS_META) -> int | None:
        """Returns the first byte of a file's content in the image, or None if it is not known."""
        return None

    def of_stream(self, attribute: pytsk3.Attribute) -> int | None:
        """Returns the first byte of a stream's content in the image, or None if it is not known or lies in the metadata."""
        return None


class NtfsPlaces(Places):
    """The Sleuth Kit has the runs of all streams of a file that it has opened."""

    def __init__(self, volume: Volume):
        self._volume = volume

    def of_stream(self, attribute: pytsk3.Attribute) -> int | None:
        if not runs.are_stored(attribute):
            return None
        first = next((run for run in islice(runs.of(attribute), RUNS_MAX) if not run.is_hole), None)
        return None if first is None else _in_image(self._volume, first.block)


class ExtPlaces(Places):
    """The inode that the times were read from also names the first block."""

    def __init__(self, volume: Volume, inodes: ext_inodes.ExtInodes):
        self._volume = volume
        self._inodes = inodes

    def of_file(self, meta: pytsk3.TSK_FS_META) -> int | None:
        # Of others, the times are not read: this must not read more, as what fails is in the result.
        read = self._inodes.are_large and any((meta.atime, meta.mtime, meta.ctime, meta.crtime))
        if not read or int(meta.type) != _META_REGULAR or meta.size <= 0:
            return None
        with contextlib.suppress(OSError):
            block = ext_inodes.first_block(self._inodes.raw(meta.addr))
            return None if block is None else _in_image(self._volume, block)
        return None


def of(times: FileTimes, volume: Volume) -> Places:
    """Returns the places of files in a volume, whose times `times` reads."""
    if isinstance(times, NtfsTimes):
        return NtfsPlaces(volume)
    return ExtPlaces(volume, times.inodes) if isinstance(times, ExtTimes) else Places()


def _in_image(volume: Volume, block: int) -> int | None:
    """Returns the place of a block in the image, or None if it is not in the volume: the number is the evidence's."""
    offset = block * volume.block_size
    return volume.start + offset if 0 < offset < volume.length else None
