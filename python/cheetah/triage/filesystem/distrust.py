"""Content that The Sleuth Kit returns for a file although it is not the file's.

docs/reference/sleuthkit.md lists what is corrected, and what is marked here.
"""

import struct

import pytsk3

from cheetah.triage.filesystem import exfat, ext_inodes
from cheetah.triage.filesystem.metadata import Metadata
from cheetah.triage.reading.worker import Worker

_REPARSE_POINT = 192
_CLOUD, _CLOUD_MASK = 0x9000001A, 0xFFFF0FFF
_ELSEWHERE = {
    0x80000017: "compressed by Windows (WOF), in another stream",
    0x80000013: "deduplicated by Windows, in the chunk store of its volume",
    0x80000021: "in Windows's compressed chunks",
    _CLOUD: "in a cloud, and not on this disk",
}
"""Where the content of files with these reparse points is."""


def elsewhere(file: pytsk3.File) -> str | None:
    """Returns where the content of an NTFS file is whose own stream is empty, if a reparse point says that it is elsewhere:
    The Sleuth Kit returns zeros. Raises OSError if that cannot be read."""
    for attribute in file:
        if int(attribute.info.type) != _REPARSE_POINT:
            continue
        content = file.read_random(0, 4, pytsk3.TSK_FS_ATTR_TYPE_NTFS_REPARSE, int(attribute.info.id))
        if len(content) < 4:
            return None
        (tag,) = struct.unpack("<I", content)
        return _ELSEWHERE.get(_CLOUD if tag & _CLOUD_MASK == _CLOUD else tag)
    return None


def valid_length(worker: Worker, volume: int, inode: int, size: int) -> int | None:
    """Returns the length up to which a file of exFAT has content of its own, or None if that cannot be determined. Raises
    OSError if it cannot be read."""
    found = worker.volumes[volume]
    lengths: exfat.ValidLengths = worker.kept(
        "valid lengths", volume, lambda: exfat.ValidLengths(worker.image().pread_noted, found.start)
    )
    return lengths.of(inode, size)


def is_encrypted(worker: Worker, volume: int, inode: int) -> bool:
    """Returns whether a file of ext4 is encrypted by the file system. Raises OSError if its inode cannot be read."""
    found = worker.volumes[volume]

    def made() -> ext_inodes.ExtInodes:
        return ext_inodes.ExtInodes(Metadata(worker.image(), found.start))

    inodes: ext_inodes.ExtInodes = worker.kept("inodes", volume, made)
    return inodes.is_encrypted(inode)
