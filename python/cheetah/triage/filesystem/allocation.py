"""The allocated blocks of a file system, from its own bitmap or table.

pytsk3 does not expose The Sleuth Kit's knowledge of them, and asking block by block would be slow. Bits stay packed:
32 MiB for a terabyte of 4 KiB clusters.
"""

import collections.abc
import struct

import numpy as np
import numpy.typing as npt

from cheetah.triage.filesystem import mft_record

Bits = npt.NDArray[np.uint8]
Read = collections.abc.Callable[[int, int], bytes]

# Read and unpacked at once.
_PIECE_BYTES = 4 << 20


class Unknown(Exception):
    """The allocated blocks cannot be determined: one sentence."""


class Allocation:
    """Units of `unit` bytes, the first at `origin`, in bytes from the start of the file system, with a bit for each,
    lowest first, 1 if allocated. Space before the first and after the last unit counts as allocated."""

    def __init__(self, unit: int, origin: int, count: int, bits: Bits):
        if count <= 0:
            raise Unknown("the file system has no clusters within its volume")
        if len(bits) * 8 < count:
            raise Unknown(f"the bitmap has {len(bits) * 8} bits for {count} clusters")
        self.unit = unit
        self.origin = origin
        self.count = count
        self._bits = bits

    @property
    def end(self) -> int:
        """The end of the last unit; the file system does not use the rest of the volume."""
        return self.origin + self.count * self.unit

    def in_use(self, start: int, length: int) -> int:
        """Returns how many of the units that these bytes touch are allocated; at least 1 if the bytes reach beyond the
        units."""
        first = (start - self.origin) // self.unit
        end = -(-(start + length - self.origin) // self.unit)
        outside = 1 if first < 0 or end > self.count else 0
        first, end = max(0, first), min(self.count, end)
        return outside + (int(self._unpacked(first, end).sum()) if end > first else 0)

    def free(self, start: int, length: int) -> collections.abc.Iterator[tuple[int, int]]:
        """Yields the free ranges within these bytes: pairs of start and length, ascending, none adjacent to the
        next."""
        first = max(0, (start - self.origin) // self.unit)
        end = min(self.count, -(-(start + length - self.origin) // self.unit))
        open_at: int | None = None
        for place in range(first, end, 8 * _PIECE_BYTES):
            stop = min(end, place + 8 * _PIECE_BYTES)
            used = self._unpacked(place, stop).astype(np.int8)
            edges = np.flatnonzero(np.diff(used, prepend=np.int8(1 if open_at is None else 0))) + place
            for edge in edges.tolist():
                if open_at is None:
                    open_at = edge
                else:
                    yield self._bytes(open_at, edge, start, length)
                    open_at = None
        if open_at is not None and end > open_at:
            yield self._bytes(open_at, end, start, length)

    def free_bytes(self) -> int:
        """Returns the number of free bytes."""
        return (
            sum(
                int((self._unpacked(place, min(self.count, place + 8 * _PIECE_BYTES)) == 0).sum())
                for place in range(0, self.count, 8 * _PIECE_BYTES)
            )
            * self.unit
        )

    def _bytes(self, first: int, end: int, start: int, length: int) -> tuple[int, int]:
        begin = max(start, self.origin + first * self.unit)
        return begin, min(start + length, self.origin + end * self.unit) - begin

    def _unpacked(self, first: int, end: int) -> Bits:
        whole = np.unpackbits(self._bits[first // 8 : -(-end // 8)], bitorder="little")
        return whole[first % 8 : first % 8 + end - first]


def of(fs: str, size: int, read: Read, ntfs_bitmap: collections.abc.Callable[[int], bytes]) -> Allocation:
    """Returns the allocation of a file system in a volume of `size` bytes; what it claims beyond them is ignored.
    `read` takes an offset and a length; `ntfs_bitmap` returns up to that many first bytes of $Bitmap. Raises Unknown
    if the allocation cannot be determined, OSError if it cannot be read."""
    try:
        if fs.startswith("ntfs"):
            return _ntfs(size, read, ntfs_bitmap)
        if fs.startswith("ext") and fs != "exfat":
            return _ext(size, read)
        if fs == "exfat":
            return _exfat(size, read)
        if fs.startswith("fat"):
            return _fat(size, read)
    except (struct.error, ZeroDivisionError, ValueError, IndexError, OverflowError) as error:
        raise Unknown("the file system's record of its free blocks is damaged") from error
    raise Unknown(f"this version cannot determine the free blocks of {fs or 'this file system'}")


def _read_all(read: Read, offset: int, length: int) -> bytes:
    pieces = []
    for place in range(0, length, _PIECE_BYTES):
        piece = read(offset + place, min(_PIECE_BYTES, length - place))
        if len(piece) != min(_PIECE_BYTES, length - place):
            raise Unknown("the file system ends before its record of its free blocks does")
        pieces.append(piece)
    return b"".join(pieces)


def _ntfs(size: int, read: Read, bitmap: collections.abc.Callable[[int], bytes]) -> Allocation:
    boot = read(0, 512)
    cluster = mft_record.cluster_bytes(boot)
    sector, sectors = struct.unpack_from("<H27xQ", boot, 11)
    if cluster < 256:
        raise Unknown("the boot sector is damaged")
    count = min(sectors * sector, size) // cluster
    # It may claim a much larger size: sparse runs cost its author nothing.
    return Allocation(cluster, 0, count, np.frombuffer(bitmap(-(-count // 8)), dtype=np.uint8))


_EXT_INCOMPAT_META_BG = 0x10
_EXT_INCOMPAT_64BIT = 0x80
_EXT_RO_SPARSE_SUPER = 0x1
_EXT_RO_BIGALLOC = 0x200
_EXT_COMPAT_SPARSE_SUPER2 = 0x200
_EXT_GROUP_BLOCK_UNINIT = 0x2
_EXT_GROUPS_MAX = 1 << 22
_EXT_DESCRIPTOR_BYTES_MAX = 1024


def _ext(size: int, read: Read) -> Allocation:
    """Returns the allocation of ext2, 3 or 4. A group whose bitmap was never written is free, except for the tables in
    it."""
    superblock = read(1024, 1024)
    blocks_low, first_block, log_block, blocks_a_group, inodes_a_group = struct.unpack_from(
        "<I12xII4xI4xI", superblock, 4
    )
    compat, incompat, ro_compat = struct.unpack_from("<III", superblock, 92)
    wide = bool(incompat & _EXT_INCOMPAT_64BIT)
    blocks = blocks_low | (struct.unpack_from("<I", superblock, 0x150)[0] << 32 if wide else 0)
    for flag, what in (
        (incompat & _EXT_INCOMPAT_META_BG, "meta_bg"),
        (compat & _EXT_COMPAT_SPARSE_SUPER2, "sparse_super2"),
        (ro_compat & _EXT_RO_BIGALLOC, "bigalloc"),
    ):
        if flag:
            raise Unknown(f"this version cannot determine the free blocks of an ext4 with {what}")
    if log_block > 6:
        raise Unknown("the superblock is damaged")
    block = 1024 << log_block
    groups_claimed = -(-(blocks - first_block) // blocks_a_group)
    blocks = min(blocks, size // block)
    groups = -(-(blocks - first_block) // blocks_a_group)
    width = struct.unpack_from("<H", superblock, 0xFE)[0] if wide else 32
    inode_size = struct.unpack_from("<H", superblock, 0x58)[0] or 128
    reserved = struct.unpack_from("<H", superblock, 0xCE)[0]
    if (
        not 0 < groups <= _EXT_GROUPS_MAX
        or blocks_a_group > 8 * block
        or blocks_a_group % 8
        or not 32 <= width <= _EXT_DESCRIPTOR_BYTES_MAX
    ):
        raise Unknown("the superblock is damaged")
    table = _read_all(read, (1024 // block + 1) * block, groups * width)
    table_blocks = -(-groups_claimed * width // block)
    inode_blocks = -(-inodes_a_group * inode_size // block)
    bits = np.zeros(groups * blocks_a_group // 8, dtype=np.uint8)
    metadata: list[tuple[int, int]] = []
    for group in range(groups):
        at = group * width
        bitmap, inode_bitmap, inodes = (
            low | (high << 32)
            for low, high in zip(
                struct.unpack_from("<III", table, at),
                struct.unpack_from("<III", table, at + 32) if wide and width >= 64 else (0, 0, 0),
                strict=True,
            )
        )
        place = group * blocks_a_group // 8
        if struct.unpack_from("<H", table, at + 18)[0] & _EXT_GROUP_BLOCK_UNINIT:
            if not ro_compat & _EXT_RO_SPARSE_SUPER or _has_superblock(group):
                metadata.append((group * blocks_a_group, 1 + table_blocks + reserved))
        else:
            found = np.frombuffer(_read_all(read, bitmap * block, blocks_a_group // 8), dtype=np.uint8)
            bits[place : place + blocks_a_group // 8] = found
        metadata += [(bitmap - first_block, 1), (inode_bitmap - first_block, 1), (inodes - first_block, inode_blocks)]
    for start, length in metadata:
        _mark(bits, start, start + length)
    return Allocation(block, first_block * block, blocks - first_block, bits)


def _mark(bits: Bits, first: int, end: int) -> None:
    """Sets the bits from `first` to before `end`, within bounds."""
    first, end = max(0, first), min(end, len(bits) * 8)
    if first >= end:
        return
    low, high = first // 8, -(-end // 8)
    part = np.unpackbits(bits[low:high], bitorder="little")
    part[first - low * 8 : end - low * 8] = 1
    bits[low:high] = np.packbits(part, bitorder="little")


def _has_superblock(group: int) -> bool:
    """Returns whether a group has a copy: 0, and powers of 3, 5 and 7."""
    if group <= 1:
        return True
    for base in (3, 5, 7):
        power = base
        while power < group:
            power *= base
        if power == group:
            return True
    return False


def _fat(size: int, read: Read) -> Allocation:
    """Returns the allocation of FAT12, 16 or 32, from the first table, where an entry of 0 is a free cluster."""
    boot = read(0, 512)
    sector, per_cluster, reserved, tables, roots, small, _media, fat_small = struct.unpack_from("<HBHBHHBH", boot, 11)
    large, fat_large = struct.unpack_from("<II", boot, 32)
    fat_sectors, sectors = fat_small or fat_large, small or large
    data = reserved + tables * fat_sectors + -(-roots * 32 // sector)
    count = (sectors - data) // per_cluster
    if sector < 512 or count <= 0:
        raise Unknown("the boot sector is damaged")
    width = 12 if count < 4085 else 16 if count < 65525 else 32
    length = min(-(-(count + 2) * width // 8), fat_sectors * sector)
    # Ignore clusters beyond the table or the volume.
    count = min(count, length * 8 // width - 2, (size - data * sector) // (per_cluster * sector))
    if count <= 0:
        raise Unknown("the boot sector is damaged")
    used = np.zeros(-(-count // 8), dtype=np.uint8)
    # Whole bytes of bits at a time: two entries precede the first cluster.
    step = 8 * (1 << 20) if width != 12 else count
    for first in range(0, count, step):
        end = min(count, first + step)
        begin = (first + 2) * width // 8
        stop = min(-(-(end + 2) * width // 8), length)
        entries = _fat_entries(_read_all(read, reserved * sector + begin, stop - begin), width)[: end - first]
        packed = np.packbits(entries != 0, bitorder="little")
        used[first // 8 : first // 8 + len(packed)] = packed
    return Allocation(per_cluster * sector, data * sector, count, used)


def _fat_entries(table: bytes, width: int) -> npt.NDArray[np.uint32]:
    if width == 32:
        return np.frombuffer(table[: len(table) // 4 * 4], dtype="<u4") & np.uint32(0x0FFFFFFF)
    if width == 16:
        return np.frombuffer(table[: len(table) // 2 * 2], dtype="<u2").astype(np.uint32)
    # Three bytes hold two entries; this part begins with entry 2, the first of a pair.
    triples = np.frombuffer(table + bytes(-len(table) % 3), dtype=np.uint8).reshape(-1, 3).astype(np.uint32)
    pairs = np.empty((len(triples), 2), dtype=np.uint32)
    pairs[:, 0] = triples[:, 0] | (triples[:, 1] & 0x0F) << 8
    pairs[:, 1] = triples[:, 1] >> 4 | triples[:, 2] << 4
    return pairs.reshape(-1)


_EXFAT_CLUSTERS_MAX = 0xFFFFFFF5
_EXFAT_ROOT_BYTES_MAX = 256 << 20


def _exfat(size: int, read: Read) -> Allocation:
    """Returns the allocation of exFAT, from the bitmap named by an entry of the root directory."""
    boot = read(0, 512)
    fat, _fat_length, heap, count, root = struct.unpack_from("<IIIII", boot, 80)
    sector_shift, cluster_shift = boot[108], boot[109]
    if not 9 <= sector_shift <= 12 or cluster_shift > 25 - sector_shift or not 0 < count <= _EXFAT_CLUSTERS_MAX:
        raise Unknown("the boot sector is damaged")
    cluster = 1 << sector_shift + cluster_shift
    count = min(count, (size - (heap << sector_shift)) // cluster)

    def chain(first: int, length_max: int) -> collections.abc.Iterator[int]:
        for _ in range(length_max):
            if not 2 <= first < count + 2:
                return
            yield first
            first = int.from_bytes(read((fat << sector_shift) + 4 * first, 4), "little")

    def offset(number: int) -> int:
        return int((heap << sector_shift) + (number - 2) * cluster)

    for number in chain(root, max(1, _EXFAT_ROOT_BYTES_MAX // cluster)):
        entries = _read_all(read, offset(number), cluster)
        for at in range(0, cluster, 32):
            if entries[at] == 0:
                break
            if entries[at] == 0x81 and not entries[at + 1] & 1:
                first, length = struct.unpack_from("<IQ", entries, at + 20)
                length = min(length, -(-count // 8))
                pieces = [_read_all(read, offset(one), cluster) for one in chain(first, -(-length // cluster))]
                bits = np.frombuffer(b"".join(pieces)[:length], dtype=np.uint8)
                return Allocation(cluster, heap << sector_shift, count, bits)
    raise Unknown("the root directory names no allocation bitmap")
