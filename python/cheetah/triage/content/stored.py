"""Where in the image the content of a file lies, if all of it lies there, as it is.

An offset in the image says nothing of the content of other files: it is compressed, encrypted, in metadata, with holes, or in places
that their record claims and that may not be theirs. These have no places here, and are read. So are files of file systems whose addresses
do not lead to the same bytes of the image: CDs with raw sectors, HFS+ in a wrapper, APFS.
"""

from typing import Any

import pytsk3

from cheetah.triage.filesystem import opening, runs
from cheetah.triage.reading.worker import Worker
from cheetah.triage.task import Entry

RUNS_MAX = 256
"""The largest number of runs: files in more pieces have no places."""
_FILE_SYSTEMS = frozenset(("ntfs", "ext2", "ext3", "ext4", "fat12", "fat16", "fat32", "exfat"))
_STORED = int(pytsk3.TSK_FS_ATTR_NONRES)
_FLAGS = (_STORED, _STORED | int(pytsk3.TSK_FS_ATTR_INUSE))
"""Stored outside of metadata; nothing else."""
_NTFS_DATA = int(pytsk3.TSK_FS_ATTR_TYPE_NTFS_DATA)
_NTFS_FILES_FIRST = 24
"""The first file of NTFS that is not one of the file system itself."""


def places(worker: Worker, entry: Entry, attribute: Any) -> list[tuple[int, int]]:
    """Returns start and length, in bytes of the image, of the runs of a stream, which have all of its content, one after the other; nothing
    if that is not so, or in doubt. Raises OSError if the metadata cannot be read."""
    volume = worker.volumes[entry.volume]
    info = attribute.info
    if volume.fs not in _FILE_SYSTEMS or entry.deleted or not entry.allocated or int(info.flags) not in _FLAGS:
        return []
    if volume.fs == "ntfs" and (info.name or int(info.type) != _NTFS_DATA or entry.inode < _NTFS_FILES_FIRST):
        return []
    # The Sleuth Kit reads no blocks behind the last one that the image has.
    last = int(opening.file_system(worker, entry.volume).info.last_block_act)
    found: list[tuple[int, int]] = []
    blocks = 0
    for at, first, count, flags in runs.of(attribute):
        start, length = volume.start + first * volume.block_size, count * volume.block_size
        is_plain = flags == 0 and at == blocks and count > 0 and first + count - 1 <= last
        is_inside = start + length <= volume.start + volume.length and not worker.image().is_corrected(start, length)
        if not (is_plain and is_inside) or len(found) == RUNS_MAX:
            return []
        found.append((start, length))
        blocks += count
    return found if blocks * volume.block_size >= int(info.size) else []
