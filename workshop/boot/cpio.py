"""Initial RAM file systems: cpio archives of the "newc" format (Linux, Documentation/driver-api/early-userspace/
buffer-format.rst). The same content gives the same bytes."""

from __future__ import annotations

import os
import stat
import tempfile

from boot.run import run

# The highest of zstd's levels, which takes a minute. Tests that need no small image use a lower one.
LEVEL = 22


class Archive:
    """An archive being made. All files belong to root, and all times are 0."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[int, bytes]] = {}

    def directory(self, name: str) -> None:
        """Adds a directory and its parents."""
        parent = os.path.dirname(name)
        if parent:
            self.directory(parent)
        self._entries.setdefault(name, (stat.S_IFDIR | 0o755, b""))

    def file(self, name: str, content: bytes, mode: int = 0o755) -> None:
        """Adds a file and its parent directories."""
        if os.path.dirname(name):
            self.directory(os.path.dirname(name))
        self._entries[name] = (stat.S_IFREG | mode, content)

    def link(self, name: str, target: str) -> None:
        """Adds a symbolic link."""
        self._entries[name] = (stat.S_IFLNK | 0o777, target.encode())

    def copy(self, name: str, path: str, mode: int = 0o755) -> None:
        """Adds a file of this machine."""
        with open(path, "rb") as file:
            self.file(name, file.read(), mode)

    def names(self) -> list[str]:
        """Returns the names of all entries, sorted."""
        return sorted(self._entries)

    def compressed(self, level: int) -> bytes:
        """Returns the archive compressed with zstd, which unpacks several times as fast as xz on a slow machine."""
        with tempfile.TemporaryDirectory() as scratch:
            plain, packed = os.path.join(scratch, "plain"), os.path.join(scratch, "packed")
            with open(plain, "wb") as file:
                file.write(self.content())
            run(["zstd", "-q", "--ultra", f"-{level}", "--single-thread", "-o", packed, plain])
            with open(packed, "rb") as file:
                result = file.read()
        # The kernel looks for the next archive behind zeros, at a multiple of four bytes.
        return result + b"\0" * (-len(result) % 512)

    def content(self) -> bytes:
        """Returns the archive, padded to 512 bytes, so that another can follow it."""
        # A parent's name is a prefix of its children's, so sorting puts it first, as the kernel requires.
        entries = [(name, *self._entries[name]) for name in self.names()]
        packed = b"".join(_entry(number, *entry) for number, entry in enumerate(entries, 1))
        packed += _entry(0, "TRAILER!!!", 0, b"")
        return packed + b"\0" * (-len(packed) % 512)


def _entry(inode: int, name: str, mode: int, content: bytes) -> bytes:
    encoded = name.encode() + b"\0"
    fields = (inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded), 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields) + encoded
    return header + b"\0" * (-len(header) % 4) + content + b"\0" * (-len(content) % 4)
