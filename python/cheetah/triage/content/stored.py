"""Where in the image the content of a file lies, if all of it lies in one place there, as it is.

An offset in the image says nothing of the content of other files: it is compressed, encrypted, in metadata, in several pieces, or in
places that their record claims and that may not be theirs. These have no place here, and are read. So have files of file systems whose
addresses do not lead to the same bytes of the image: CDs with raw sectors, HFS+ in a wrapper, APFS.
"""

import itertools
from typing import Any

import pytsk3

from cheetah.triage.filesystem import opening
from cheetah.triage.reading.worker import Worker
from cheetah.triage.task import Entry

_FILE_SYSTEMS = frozenset(("ntfs", "ext2", "ext3", "ext4", "fat12", "fat16", "fat32", "exfat"))
_STORED = int(pytsk3.TSK_FS_ATTR_NONRES)
_FLAGS = (_STORED, _STORED | int(pytsk3.TSK_FS_ATTR_INUSE))
"""Stored outside of metadata; nothing else."""
_NTFS_DATA = int(pytsk3.TSK_FS_ATTR_TYPE_NTFS_DATA)
_NTFS_FILES_FIRST = 24
"""The first file of NTFS that is not one of the file system itself."""


def place(worker: Worker, entry: Entry, attribute: Any) -> tuple[int, int] | None:
    """Returns start and length, in bytes of the image, of the only run of a stream, which has all of its content; None if that is not
    so, or in doubt. Raises OSError if the metadata cannot be read."""
    volume = worker.volumes[entry.volume]
    info = attribute.info
    if volume.fs not in _FILE_SYSTEMS or entry.deleted or not entry.allocated or int(info.flags) not in _FLAGS:
        return None
    if volume.fs == "ntfs" and (info.name or int(info.type) != _NTFS_DATA or entry.inode < _NTFS_FILES_FIRST):
        return None
    runs = list(itertools.islice(attribute, 2))
    if len(runs) != 1 or int(runs[0].flags) or int(runs[0].offset):
        return None
    # The Sleuth Kit reads no blocks behind the last one that the image has.
    last = int(opening.file_system(worker, entry.volume).info.last_block_act)
    if int(runs[0].addr) + int(runs[0].len) - 1 > last:
        return None
    start = volume.start + int(runs[0].addr) * volume.block_size
    length = int(runs[0].len) * volume.block_size
    if length < int(info.size) or start + length > volume.start + volume.length:
        return None
    return None if worker.image().is_corrected(start, length) else (start, length)
