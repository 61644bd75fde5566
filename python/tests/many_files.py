"""Makes a real volume with any number of files in a moment: FAT32, in folders of a thousand. Other programs make one
file at a time and take a minute."""

import struct
import sys
from pathlib import Path

import numpy as np

SECTOR = 512
FOLDER_FILES = 1000
RESERVED = 32
CLUSTERS_MIN = 65_600
"""FAT32 needs at least this many."""
DATED = struct.pack("<BBHHHHHH", 0, 0, 0x6000, 0x5A21, 0x5A21, 0, 0x6000, 0x5A21)
"""The bytes after an entry's attributes: times, none of them zero."""


def make(path: Path, files: int) -> Path:
    """Writes a volume with that many empty files, a multiple of a thousand."""
    folders = files // FOLDER_FILES
    each = -(-(FOLDER_FILES + 2) * 32 // SECTOR)
    root = -(-folders * 32 // SECTOR)
    clusters = max(CLUSTERS_MIN, 2 + root + folders * each)
    fat_sectors = -(-(clusters + 2) * 4 // SECTOR)
    fat = np.zeros(fat_sectors * SECTOR // 4, "<u4")
    fat[:2] = 0x0FFFFFF8, 0x0FFFFFFF
    firsts = [2 + root + number * each for number in range(folders)]
    for first, length in [(2, root), *((first, each) for first in firsts)]:
        fat[first : first + length] = np.arange(first + 1, first + length + 1)
        fat[first + length - 1] = 0x0FFFFFFF
    with path.open("wb") as file:
        file.write(_boot(RESERVED + fat_sectors + clusters, fat_sectors))
        file.seek(RESERVED * SECTOR)
        file.write(fat.tobytes())
        listed = b"".join(_entry(f"DIR{number:05}", "", 0x10, first) for number, first in enumerate(firsts))
        file.write(listed.ljust(root * SECTOR, b"\0"))
        inside = b"".join(_entry(f"FILE{number:04}", "TXT", 0x20, 0) for number in range(FOLDER_FILES))
        for first in firsts:
            content = _entry(".", "", 0x10, first) + _entry("..", "", 0x10, 0) + inside
            file.write(content.ljust(each * SECTOR, b"\0"))
        file.truncate((RESERVED + fat_sectors + clusters) * SECTOR)
    return path


def _boot(sectors: int, fat_sectors: int) -> bytes:
    head = struct.pack(
        "<3s8sHBHBHHBHHHII", b"\xeb\x58\x90", b"MSDOS5.0", SECTOR, 1, RESERVED, 1, 0, 0, 0xF8, 0, 63, 255, 0, sectors
    )
    head += struct.pack(
        "<IHHIHH12xBBBI11s8s", fat_sectors, 0, 0, 2, 1, 6, 0x80, 0, 0x29, 42, b"CASE42     ", b"FAT32   "
    )
    return head.ljust(510, b"\0") + b"\x55\xaa"


def _entry(name: str, extension: str, attributes: int, cluster: int) -> bytes:
    fixed = f"{name:<8}{extension:<3}".encode() + bytes([attributes]) + DATED
    # The high half of the first cluster is among the times.
    return fixed[:20] + struct.pack("<H", cluster >> 16) + fixed[22:26] + struct.pack("<HI", cluster & 0xFFFF, 0)


if __name__ == "__main__":
    make(Path(sys.argv[2]), int(sys.argv[1]))
