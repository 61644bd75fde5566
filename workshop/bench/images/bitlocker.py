"""A volume of BitLocker around a file system, for tests and benchmarks: as Windows 8 and later make it, AES-XTS with 128 bits.

Sources: "BitLocker Drive Encryption (BDE) format specification" (J. Metz, libbde); a look into volumes that Windows 10 made. libbde and
dislocker open what is made here. Windows was not tried: no file of the NTFS covers the places of the metadata.

All keys are the same in each volume and follow from their names, so nothing is secret in one.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import struct
import uuid
import zlib
from collections.abc import Sequence

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESCCM
from numpy.typing import NDArray

from cheetah.bench.failure import BenchError
from cheetah.bench.units import KIB

SECTOR_BYTES = 512
BLOCK_BYTES = 16
# The first sectors of the volume lie elsewhere. Each place of the metadata is this large.
HEADER_BYTES = 16 * SECTOR_BYTES
PLACE_BYTES = 64 * KIB
# How much is encrypted at once: what the caches of a processor hold, in whole places.
PIECE_BYTES = 2 * PLACE_BYTES
NTFS = b"NTFS    "
SIGNATURE = b"-FVE-FS-"
IDENTIFIER = uuid.UUID("4967d63b-2e29-4ad8-8399-f6a339e3d001").bytes_le
ENCRYPTED = 4
ROUNDS = 0x100000
# 2024-01-01, in units of 100 ns since 1601.
TIME = 133_485_408_000_000_000

# Kinds of entries, and of their values.
ANY, MASTER_KEY, VOLUME_KEY, EXTERNAL, DESCRIPTION, HEADER = 0, 2, 3, 6, 7, 15
SEALED_PASSWORD, SEALED_STRETCHED = 18, 19
KEY, TEXT, STRETCH_KEY, USE_KEY, SEALED, PROTECTOR, EXTERNAL_KEY, PLACE = 1, 2, 3, 4, 5, 8, 9, 15
# What the keys are for.
FOR_CLEAR, FOR_STARTUP, FOR_MASTER, FOR_HASH, FOR_STRETCHED = 0x2000, 0x2002, 0x2003, 0x2005, 0x2008
FOR_PASSWORD, FOR_STRETCHING, XTS_128 = 1, 0x1000, 0x8004
# Kinds of protectors.
CLEAR, STARTUP, RECOVERY = 0, 0x200, 0x800


def _made(name: str, size: int) -> bytes:
    """Returns the bytes that follow from a name, at most 32."""
    return hashlib.sha256(f"BitLocker for tests: {name}".encode()).digest()[:size]


VOLUME, MASTER, RECOVERED, EXTERNALLY, CLEARLY = (
    _made(name, size)
    for name, size in (("volume", 32), ("master", 32), ("recovery", 16), ("startup", 32), ("clear", 32))
)
STARTUP_ID = _made("startup key", 16)

# 48 digits in eight groups; each is eleven times a number of 16 bits.
RECOVERY_PASSWORD = "-".join(f"{11 * number:06}" for number in struct.unpack("<8H", RECOVERED))


@dataclasses.dataclass(frozen=True)
class Places:
    """What BitLocker keeps within the volume: offsets in bytes. The file system holds zeros there, and its readers see zeros."""

    header_at: int
    metadata_at: list[int]


def make(image: str, path: str, startup_key: bool = False, clear_key: bool = False) -> Places:
    """Writes a volume with the content of a raw image of NTFS. RECOVERY_PASSWORD opens it; with `startup_key` the content of
    startup_key_file() does, too, and with `clear_key` no key is needed, as in a volume whose protection is suspended.

    A reader shows the image again, byte by byte. Raises BenchError if the image is no NTFS with sectors of 512 bytes, or has no room.
    """
    size_bytes = os.path.getsize(image)
    with open(image, "rb") as content, open(path, "wb") as volume:
        beginning = content.read(HEADER_BYTES)
        if beginning[3:13] != NTFS + struct.pack("<H", SECTOR_BYTES) or size_bytes % SECTOR_BYTES:
            raise BenchError(f"{image} is no NTFS with sectors of {SECTOR_BYTES} bytes")
        places = _places(image, size_bytes)
        xts = Xts(VOLUME)
        content.seek(0)
        for at in range(0, size_bytes, PIECE_BYTES):
            piece = bytearray(content.read(PIECE_BYTES))
            if at <= places.header_at < at + PIECE_BYTES:
                start = places.header_at - at
                piece[start : start + HEADER_BYTES] = beginning
            volume.write(xts.encrypt(at // SECTOR_BYTES, piece))
        block = _metadata(size_bytes, places, startup_key, clear_key).ljust(PLACE_BYTES, b"\0")
        for at, written in [(0, _boot_sector(beginning, places)), *((at, block) for at in places.metadata_at)]:
            volume.seek(at)
            volume.write(written)
    return places


def startup_key_file() -> bytes:
    """Returns the content of the key file (.BEK) of volumes with a startup key."""
    key = _entry(ANY, TEXT, _text("ExternalKey")) + _key(FOR_STARTUP, EXTERNALLY)
    entry = _entry(EXTERNAL, EXTERNAL_KEY, STARTUP_ID + struct.pack("<Q", TIME) + key)
    size = 48 + len(entry)
    return struct.pack("<4I16sIIQ", size, 1, 48, size, STARTUP_ID, 1, 0, TIME) + entry


class Xts:
    """AES-XTS with sectors of 512 bytes, for many sectors at once: the XTS of `cryptography` takes one call for each sector.

    Numbers are those of a little-endian machine."""

    def __init__(self, key: bytes) -> None:
        half = len(key) // 2
        self._data, self._tweak = (
            Cipher(algorithms.AES(part), modes.ECB()).encryptor() for part in (key[:half], key[half:])
        )

    def encrypt(self, first: int, content: bytes | bytearray) -> bytes:
        """Encrypts whole sectors, of which `first` is the number of the first one."""
        tweaks = self._tweaks(first, len(content) // SECTOR_BYTES)
        mixed = np.frombuffer(content, np.uint64) ^ tweaks
        return (np.frombuffer(self._data.update(mixed.tobytes()), np.uint64) ^ tweaks).tobytes()

    def _tweaks(self, first: int, sectors: int) -> NDArray[np.uint64]:
        """Returns the tweaks of all blocks: the encrypted number of the sector, then each time twice that in GF(2^128)."""
        numbers = np.zeros((sectors, 2), np.uint64)
        numbers[:, 0] = np.arange(first, first + sectors)
        low, high = np.frombuffer(self._tweak.update(numbers.tobytes()), np.uint64).reshape(sectors, 2).T
        tweaks = np.empty((sectors, SECTOR_BYTES // BLOCK_BYTES, 2), np.uint64)
        one, top = np.uint64(1), np.uint64(63)
        for nth in range(tweaks.shape[1]):
            tweaks[:, nth, 0], tweaks[:, nth, 1] = low, high
            low, high = (low << one) ^ (high >> top) * np.uint64(0x87), (high << one) | (low >> top)
        return tweaks.reshape(-1)


def _places(image: str, size_bytes: int) -> Places:
    """Chooses places that hold zeros: near a quarter, half and three quarters of the volume, and for its beginning near the first."""
    zeros = bytes(PLACE_BYTES)
    free: list[int] = []
    with open(image, "rb") as file:
        for at in range(0, size_bytes, PLACE_BYTES):
            if file.read(PLACE_BYTES) == zeros:
                free.append(at)
    if len(free) < 4:
        raise BenchError(f"{image} has no four places of {PLACE_BYTES // KIB} KiB with zeros")
    chosen: list[int] = []
    for wanted in (size_bytes // 4, size_bytes // 2, size_bytes * 3 // 4, size_bytes // 4):
        chosen.append(min((at for at in free if at not in chosen), key=lambda at: abs(at - wanted)))
    return Places(chosen.pop(), chosen)


def _boot_sector(beginning: bytes, places: Places) -> bytes:
    """The boot sector, which is one of FAT32 for programs that do not know BitLocker."""
    sector = b"\xeb\x58\x90" + SIGNATURE + beginning[11:14]
    sector = sector.ljust(21, b"\0") + struct.pack("<B2xHHII", 0xF8, 63, 255, 0, 0)
    sector += struct.pack("<IHHIHH12xBBBI", 0x1FE0, 0, 0, 0, 1, 6, 0x80, 0, 0x29, 0) + b"NO NAME    FAT32   "
    sector = sector.ljust(160, b"\0") + IDENTIFIER + struct.pack("<3Q", *places.metadata_at)
    return sector.ljust(510, b"\0") + b"\x55\xaa"


def _metadata(size_bytes: int, places: Places, startup_key: bool, clear_key: bool) -> bytes:
    """A block of metadata, and what confirms it: its CRC-32, and its SHA-256, which the master key seals."""
    seal = _Seals()
    entries = [_entry(DESCRIPTION, TEXT, _text("CHEETAH benchmark")), _recovery(seal)]
    entries += [_startup(seal)] if startup_key else []
    entries += [_clear(seal)] if clear_key else []
    entries += [seal(VOLUME_KEY, MASTER, XTS_128, VOLUME)]
    entries += [_entry(HEADER, PLACE, struct.pack("<QQ", places.header_at, HEADER_BYTES))]
    content = b"".join(entries)
    size, units = 48 + len(content), -(-(64 + 48 + len(content)) // 16)
    block = SIGNATURE + struct.pack("<4H", units, 2, ENCRYPTED, ENCRYPTED)
    block += struct.pack("<QII", size_bytes, 0, HEADER_BYTES // SECTOR_BYTES)
    block += struct.pack("<4Q", *places.metadata_at, places.header_at)
    block += struct.pack("<4I16sIIQ", size, 1, 48, size, _made("identifier", 16), seal.count + 1, XTS_128, TIME)
    block = (block + content).ljust(16 * units, b"\0")
    confirmed = struct.pack("<HHI", PLACE_BYTES - len(block), 2, zlib.crc32(block))
    return block + confirmed + seal(ANY, MASTER, FOR_HASH, hashlib.sha256(block).digest())


class _Seals:
    """Seals keys with other ones: AES-CCM, each time with another nonce."""

    def __init__(self) -> None:
        self.count = 1

    def __call__(self, kind: int, by: bytes, method: int, key: bytes) -> bytes:
        self.count += 1
        nonce = struct.pack("<QI", TIME, self.count)
        sealed = AESCCM(by, tag_length=16).encrypt(nonce, _key(method, key), None)
        return _entry(kind, SEALED, nonce + sealed[-16:] + sealed[:-16])


def _recovery(seal: _Seals) -> bytes:
    salt = _made("salt", 16)
    stretched = _stretched(hashlib.sha256(RECOVERED).digest(), salt)
    # The password and its key again, sealed with the master key: Windows shows them to an administrator.
    again = seal(SEALED_PASSWORD, MASTER, FOR_PASSWORD, RECOVERED) + seal(
        SEALED_STRETCHED, MASTER, FOR_STRETCHED, stretched
    )
    stretch = _entry(ANY, STRETCH_KEY, struct.pack("<I", FOR_STRETCHING) + salt + again)
    ways = [_entry(ANY, TEXT, _text("DiskPassword")), stretch, seal(ANY, stretched, FOR_MASTER, MASTER)]
    return _protector(RECOVERY, _made("recovery password", 16), ways)


def _startup(seal: _Seals) -> bytes:
    use = _entry(ANY, USE_KEY, struct.pack("<I", FOR_STARTUP) + seal(ANY, MASTER, FOR_STARTUP, EXTERNALLY))
    ways = [_entry(ANY, TEXT, _text("ExternalKey")), use, seal(ANY, EXTERNALLY, FOR_MASTER, MASTER)]
    return _protector(STARTUP, STARTUP_ID, ways)


def _clear(seal: _Seals) -> bytes:
    ways = [_key(FOR_CLEAR, CLEARLY), seal(ANY, CLEARLY, FOR_MASTER, MASTER)]
    return _protector(CLEAR, _made("clear key", 16), ways)


def _protector(kind: int, identifier: bytes, ways: Sequence[bytes]) -> bytes:
    return _entry(MASTER_KEY, PROTECTOR, struct.pack("<16sQHH", identifier, TIME, 0, kind) + b"".join(ways))


def _key(method: int, key: bytes) -> bytes:
    return _entry(ANY, KEY, struct.pack("<I", method) + key)


def _entry(kind: int, value: int, content: bytes) -> bytes:
    return struct.pack("<4H", 8 + len(content), kind, value, 1) + content


def _text(text: str) -> bytes:
    return f"{text}\0".encode("utf-16-le")


@functools.cache
def _stretched(first: bytes, salt: bytes) -> bytes:
    """The key of a hashed password, after a second of SHA-256."""
    last, rest, sha256 = bytes(32), first + salt, hashlib.sha256
    for count in range(ROUNDS):
        last = sha256(last + rest + count.to_bytes(8, "little")).digest()
    return last
