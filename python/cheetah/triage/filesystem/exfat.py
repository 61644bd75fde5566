"""What The Sleuth Kit reads wrongly of exFAT, read right.

It refuses a volume whose allocation bitmap is recorded longer than needed, as manufacturers format flash drives. It does
not know a file's valid data length, behind which bytes read as zeros (section 7.6.5 of the specification), and returns
the remains of other files that lie there.
"""

import collections.abc
import dataclasses
import struct

Read = collections.abc.Callable[[int, int], bytes]

ENTRY_BYTES = 32
_BITMAP, _FILE, _STREAM = 0x81, 0x85, 0xC0
_IN_USE = 0x80
_FIRST_INODE = 3
"""The Sleuth Kit numbers the directory entries from the start of the clusters on, beginning with this number."""
_ROOT_BYTES_MAX = 1 << 20
"""The bitmap's entry stands at the start of the root directory."""


@dataclasses.dataclass(frozen=True)
class Correction:
    """Bytes that The Sleuth Kit is to see at an offset of the image, and why: one sentence."""

    offset: int
    content: bytes
    sentence: str


@dataclasses.dataclass(frozen=True)
class Layout:
    """The places of a volume, in bytes from its start, and its clusters."""

    fat: int
    heap: int
    cluster: int
    count: int
    root: int

    @classmethod
    def of(cls, boot: bytes) -> "Layout | None":
        """Parses a boot sector; None if it makes no sense."""
        if len(boot) < 512 or boot[3:11] != b"EXFAT   ":
            return None
        fat, _, heap, count, root = struct.unpack_from("<5I", boot, 80)
        sector_shift, cluster_shift = boot[108], boot[109]
        if not 9 <= sector_shift <= 12 or cluster_shift > 25 - sector_shift or not count:
            return None
        return cls(fat << sector_shift, heap << sector_shift, 1 << sector_shift + cluster_shift, count, root)

    def place(self, cluster: int) -> int:
        """Returns the place of a cluster."""
        return self.heap + (cluster - 2) * self.cluster

    def entry(self, inode: int) -> int | None:
        """Returns the place of the directory entry that The Sleuth Kit numbers so; None for a file that it makes up."""
        at = self.heap + (inode - _FIRST_INODE) * ENTRY_BYTES
        return at if inode >= _FIRST_INODE and at < self.place(self.count + 2) else None

    def holds(self, cluster: int) -> bool:
        """Returns whether there is such a cluster."""
        return 2 <= cluster < self.count + 2


def is_file(entry: bytes) -> bool:
    """Returns whether a directory entry begins a file's set of entries, perhaps of a deleted one."""
    return entry[0] | _IN_USE == _FILE


def correction(read: Read, start: int) -> Correction | None:
    """Returns the correction of a volume at `start` whose bitmap is recorded longer than needed."""
    try:
        layout = Layout.of(read(start, 512))
        if layout is None or not layout.holds(layout.root):
            return None
        place = start + layout.place(layout.root)
        entries = read(place, min(layout.cluster, _ROOT_BYTES_MAX))
    except OSError:
        return None
    needed = -(-layout.count // 8)
    for at in range(0, len(entries) - ENTRY_BYTES + 1, ENTRY_BYTES):
        if entries[at] == 0:
            break
        if entries[at] != _BITMAP:
            continue
        (recorded,) = struct.unpack_from("<Q", entries, at + 24)
        if needed < recorded <= -(-needed // layout.cluster) * layout.cluster + layout.cluster:
            sentence = (
                f"the allocation bitmap of the exFAT is recorded with {recorded} bytes, of which {needed} are needed; it "
                f"is read as {needed}"
            )
            return Correction(place + at + 24, struct.pack("<Q", needed), sentence)
    return None


class ValidLengths:
    """The valid data lengths of the files of a volume at `start`."""

    def __init__(self, read: Read, start: int):
        self._read = read
        self._start = start
        self._layout = Layout.of(read(start, 512))

    def of(self, inode: int, size: int) -> int | None:
        """Returns the length up to which the content of a file of `size` bytes is its own, or None if it cannot be
        determined. Raises OSError if it cannot be read."""
        layout = self._layout
        if layout is None:
            return None
        at = layout.entry(inode)
        if at is None or not is_file(self._read(self._start + at, ENTRY_BYTES)):
            return size
        for place in self._after(at):
            stream = self._read(self._start + place, ENTRY_BYTES)
            valid, length = struct.unpack_from("<Q8xQ", stream, 8)
            if stream[0] | _IN_USE == _STREAM and length == size and valid <= length:
                return int(valid)
        return None

    def _after(self, at: int) -> collections.abc.Iterator[int]:
        """Yields the places where the next entry of the directory may be. The FAT does not describe a directory that is
        contiguous."""
        layout = self._layout
        assert layout is not None
        behind = at + ENTRY_BYTES
        if (behind - layout.heap) % layout.cluster:
            yield behind
            return
        cluster = (at - layout.heap) // layout.cluster + 2
        (following,) = struct.unpack("<I", self._read(self._start + layout.fat + 4 * cluster, 4))
        if layout.holds(following):
            yield layout.place(following)
        if layout.holds(cluster + 1):
            yield behind
