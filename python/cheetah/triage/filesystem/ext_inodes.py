"""The inodes of ext2, ext3 and ext4 as they are on the disk."""

import struct

from cheetah.triage.filesystem.metadata import Metadata

SMALL_BYTES = 128
"""The size of the inodes of ext2, without the fields of ext4."""
_READ_BYTES = 160
"""As much of an inode as is looked at."""
_META_BG, _64BIT, _ENCRYPT = 0x10, 0x80, 0x10000
_SPARSE_SUPER = 0x1
_FLAGS_AT, _ENCRYPTED, _EXTENTS, _INLINE = 32, 0x800, 0x80000, 0x10000000
_BLOCKS_AT, _EXTENT_MAGIC = 40, 0xF30A


class ExtInodes:
    """The inodes of a volume. Raises OSError if its superblock cannot be read."""

    def __init__(self, metadata: Metadata):
        self._metadata = metadata
        superblock = metadata.bytes_at(1024, 1024)
        if len(superblock) < 1024:
            raise OSError("the source ends before the superblock")
        self._first_block, log_block = struct.unpack_from("<II", superblock, 20)
        self._block = 1024 << min(log_block, 6)
        self._blocks_a_group, self._inodes_a_group = struct.unpack_from("<I4xI", superblock, 32)
        is_first_revision = struct.unpack_from("<I", superblock, 76)[0] == 0
        self._inode_size = SMALL_BYTES if is_first_revision else struct.unpack_from("<H", superblock, 88)[0]
        incompatible, read_only = struct.unpack_from("<II", superblock, 96)
        self._wide = bool(incompatible & _64BIT)
        width = struct.unpack_from("<H", superblock, 254)[0]
        self._width = width if self._wide and 32 <= width <= self._block else 32
        self._first_meta_group = struct.unpack_from("<I", superblock, 260)[0] if incompatible & _META_BG else None
        self._sparse = bool(read_only & _SPARSE_SUPER)
        self.may_be_encrypted = bool(incompatible & _ENCRYPT)
        """Whether files may be encrypted by the file system (fscrypt)."""

    @property
    def are_large(self) -> bool:
        """Whether inodes have the fields of ext4."""
        return self._inode_size >= _READ_BYTES

    def raw(self, inode: int) -> bytes:
        """Returns the beginning of an inode. Raises OSError if it cannot be read."""
        if self._inodes_a_group == 0 or inode < 1:
            raise OSError(f"there is no inode {inode}")
        group, within = divmod(inode - 1, self._inodes_a_group)
        descriptor = self._metadata.bytes_at(self._descriptor(group), self._width)
        length = min(self._inode_size, _READ_BYTES)
        if len(descriptor) == self._width:
            (table,) = struct.unpack_from("<I", descriptor, 8)
            if self._wide and self._width >= 64:
                table |= struct.unpack_from("<I", descriptor, 40)[0] << 32
            raw = self._metadata.bytes_at(table * self._block + within * self._inode_size, length)
            if len(raw) == length:
                return raw
        raise OSError(f"the inode {inode} lies beyond the end of the source")

    def is_encrypted(self, inode: int) -> bool:
        """Returns whether a file's content is encrypted. Raises OSError if its inode cannot be read."""
        return self.may_be_encrypted and bool(struct.unpack_from("<I", self.raw(inode), _FLAGS_AT)[0] & _ENCRYPTED)

    def _descriptor(self, group: int) -> int:
        """Returns the place of a group's descriptor. With meta_bg they lie in the groups that they describe."""
        a_block = self._block // self._width
        meta_group = group // a_block
        if self._first_meta_group is None or meta_group < self._first_meta_group:
            return int((self._first_block + 1) * self._block + group * self._width)
        first = meta_group * a_block
        has_superblock = not self._sparse or first <= 1 or any(_is_power(first, base) for base in (3, 5, 7))
        block = self._first_block + first * self._blocks_a_group + has_superblock
        return int(block * self._block + group % a_block * self._width)


def first_block(raw: bytes) -> int | None:
    """Returns the block at which a file's content begins, by its inode of at least `SMALL_BYTES`. Of a file in many extents it is
    that of their list, which ext4 puts near them. None if the file has no block."""
    (flags,) = struct.unpack_from("<I", raw, _FLAGS_AT)
    if flags & _INLINE:
        return None
    if not flags & _EXTENTS:
        return int(struct.unpack_from("<I", raw, _BLOCKS_AT)[0]) or None
    magic, entries, _, depth = struct.unpack_from("<4H", raw, _BLOCKS_AT)
    if magic != _EXTENT_MAGIC or entries == 0:
        return None
    if depth:
        low, high = struct.unpack_from("<IH", raw, _BLOCKS_AT + 16)
    else:
        high, low = struct.unpack_from("<HI", raw, _BLOCKS_AT + 18)
    return int(high << 32 | low) or None


def _is_power(number: int, base: int) -> bool:
    while number > 1 and number % base == 0:
        number //= base
    return number == 1
