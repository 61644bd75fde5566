"""Partitions and their file systems. Unrecognised ones are reported, never omitted."""

import dataclasses
import struct

import pytsk3

from cheetah.triage.task import Problem, Result, Task, Volume
from cheetah.triage.workers.worker import Worker

PARTITIONS_MAX = 1024
_ALLOCATED = 1
_SECTOR = 512

# Formats that The Sleuth Kit or pytsk3 does not open: the offset of the magic number, the number, and a name.
_FOREIGN = (
    (3, b"-FVE-FS-", "BitLocker, encrypted"),
    (0, b"LUKS\xba\xbe", "LUKS, encrypted"),
    (32, b"NXSB", "APFS"),
    (0, b"XFSB", "XFS"),
    (0x10040, b"_BHRfS_M", "Btrfs"),
    (3, b"ReFS\0\0\0\0", "ReFS"),
    (0x218, b"LVM2 001", "LVM2"),
    (4086, b"SWAPSPACE2", "Linux swap"),
    (0x400, b"\x10\x20\xf5\xf2", "F2FS"),
    (0, b"hsqs", "SquashFS"),
)
_NAMES = {
    int(getattr(pytsk3, f"TSK_FS_TYPE_{name}")): name.lower()
    for name in (
        "NTFS", "FAT12", "FAT16", "FAT32", "EXFAT", "EXT2", "EXT3", "EXT4", "FFS1",
        "FFS1B", "FFS2", "HFS", "ISO9660", "YAFFS2",
    )
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Extent:
    """The place of a partition in bytes, and its description in the table."""

    start: int
    length: int
    description: str
    sector_size: int
    partitioned: bool = True


def task() -> Task:
    """Returns the task that finds the volumes."""
    return Task("volumes", -1, ())


def find(worker: Worker) -> Result:
    """Finds all partitions and their file systems; without a partition table, or if no partition holds one, the source
    as a whole."""
    image = worker.image()
    result = Result()
    cut: dict[int, Problem] = {}
    volumes = [_volume(worker, index, extent, cut) for index, extent in enumerate(_partitions(worker, result))]
    if not any(volume.fs for volume in volumes):
        alone: dict[int, Problem] = {}
        whole = _volume(worker, 0, Extent(0, image.get_size(), "the whole source", 512, partitioned=False), alone)
        if whole.fs or not volumes:
            volumes, cut = [whole], alone
    result.volumes = volumes
    for volume in volumes:
        if volume.index in cut:
            result.problems.append(cut[volume.index])
        if not volume.fs:
            what = f"bytes {volume.start} to {volume.start + volume.length} ({volume.description})"
            result.problems.append(Problem("volumes", f"{what} hold no supported file system", volume.index))
    return result


def _partitions(worker: Worker, result: Result) -> list[Extent]:
    """Returns the partitions, in the order of the table."""
    try:
        table = pytsk3.Volume_Info(worker.image())
    except OSError:
        return _behind_the_end(worker)
    sector_size = int(table.info.block_size)
    extents: list[Extent] = []
    for part in table:
        if not int(part.flags) & _ALLOCATED:
            continue
        if len(extents) == PARTITIONS_MAX:
            result.problems.append(Problem("volumes", f"more than {PARTITIONS_MAX} partitions; the rest is ignored"))
            break
        description = (part.desc or b"").decode("utf-8", "backslashreplace")
        extents.append(Extent(part.start * sector_size, part.len * sector_size, description, sector_size))
    return extents


def _behind_the_end(worker: Worker) -> list[Extent]:
    """Returns the primary partitions of an MBR if one of them begins beyond the end of the source; The Sleuth Kit then
    rejects the whole table."""
    try:
        sector = worker.image().pread(0, _SECTOR)
    except OSError:
        return []
    if sector[510:512] != b"\x55\xaa":
        return []
    entries = [struct.unpack_from("<BxxxBxxxII", sector, 446 + 16 * number) for number in range(4)]
    if any(active not in (0, 0x80) for active, *_ in entries):
        return []
    extents = [
        Extent(start * _SECTOR, length * _SECTOR, f"partition of type 0x{kind:02x}", _SECTOR)
        for _, kind, start, length in entries
        if kind and length
    ]
    return extents if any(one.start >= worker.source.size for one in extents) else []


def _volume(worker: Worker, index: int, extent: Extent, cut: dict[int, Problem]) -> Volume:
    """Returns the volume in a partition. `cut` receives the bytes that the source lacks of it."""
    size = worker.source.size
    fs, block_size, root, inodes, description = "", 0, 0, 0, extent.description
    end = extent.start + extent.length
    if extent.start >= size:
        description += ", beyond the end of the source"
    else:
        try:
            info = pytsk3.FS_Info(worker.image(), offset=extent.start).info
            fs, block_size, root = _NAMES.get(int(info.ftype), "other"), int(info.block_size), int(info.root_inum)
            inodes = int(info.last_inum)
            end = max(end, extent.start + int(info.block_count) * block_size)
        except OSError:
            description += _foreign(worker, extent)
        if end > size:
            description += ", cut short: the source ends before it"
    if end > size:
        first = max(size, extent.start)
        sentence = (
            f"the source ends before the volume: its last {end - first} of {end - extent.start} bytes are missing"
        )
        cut[index] = Problem("volumes", sentence, index, None, first, end - first)
    length = max(0, min(extent.length, size - extent.start))
    return Volume(
        index,
        extent.start,
        length,
        fs,
        description,
        extent.sector_size,
        block_size,
        extent.partitioned,
        root,
        inodes,
    )


def _foreign(worker: Worker, extent: Extent) -> str:
    """Returns the name of a format that The Sleuth Kit does not open, if known."""
    for offset, magic, name in _FOREIGN:
        try:
            if worker.image().pread(extent.start + offset, len(magic)) == magic:
                return f", {name}"
        except OSError:
            continue
    return ""
