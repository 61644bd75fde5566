"""A worker over an image, as the stages of a triage see it; and images with test content."""

import os
import pathlib
import subprocess
from collections.abc import Sequence
from typing import Any
from unittest import mock

import pytsk3
from conftest import MIB, program, run

from cheetah.triage.reading.worker import Worker
from cheetah.triage.settings import Settings
from cheetah.triage.task import Entry, Volume


class Raw:
    """An image file as a source with unreadable ranges: pairs of first byte and end."""

    def __init__(self, path: pathlib.Path, *bad: tuple[int, int]):
        self.name, self.size, self.bad = path.name, path.stat().st_size, bad
        self._file = path.open("rb", buffering=0)

    def pread(self, offset: int, length: int) -> bytes:
        for first, end in self.bad:
            if offset < end and offset + length > first:
                raise OSError(5, "the disk has a bad sector")
        return os.pread(self._file.fileno(), length, offset)

    def close(self) -> None:
        self._file.close()


def worker(image: pathlib.Path, fs: str, source: Any = None, **settings: Any) -> Worker:
    """A worker for an image that is one file system."""
    info = pytsk3.FS_Info(pytsk3.Img_Info(str(image))).info
    volume = Volume(
        0,
        0,
        image.stat().st_size,
        fs,
        "",
        block_size=int(info.block_size),
        partitioned=False,
        root_inode=int(info.root_inum),
    )
    with mock.patch("cheetah.triage.reading.worker.open_source", lambda uri: source or Raw(pathlib.Path(uri))):
        return Worker(str(image), Settings(source=str(image), out="/nonexistent", **settings), (volume,))


def entries(image: pathlib.Path) -> dict[str, Entry]:
    """The lines of `fls` for its files that have content, by path."""
    info = pytsk3.FS_Info(pytsk3.Img_Info(str(image))).info
    found: dict[str, Entry] = {}
    for line in run(program("fls"), "-r", "-p", "-F", image).splitlines():
        head, path = line.split(":\t", 1)
        deleted = " * " in head
        address = head.split()[-1].removesuffix("(realloc)")
        numbers = [int(part) for part in address.split("-")] + [None, None]
        name = path.rpartition("/")[2]
        extension = name.rpartition(".")[2].lower() if "." in name else ""
        if numbers[1] not in (None, 128) or (numbers[1] is None and info.ftype == pytsk3.TSK_FS_TYPE_NTFS):
            continue
        allocated = not deleted or head.endswith("(realloc)")
        found["/" + path] = Entry(
            len(found),
            0,
            address,
            numbers[0] or 0,
            numbers[1],
            numbers[2],
            0,
            "/" + path,
            name,
            extension,
            deleted,
            allocated,
        )
    return found


def icat(image: pathlib.Path, entry: Entry) -> bytes:
    """The content as The Sleuth Kit's own program gives it."""
    return subprocess.run([program("icat"), image, entry.address], capture_output=True, check=True).stdout


def fat(image: pathlib.Path, files: dict[str, bytes], delete: Sequence[str] = (), size: int = 24 * MIB) -> pathlib.Path:
    """A FAT volume with these files in this order; then some are deleted."""
    with image.open("wb") as file:
        file.truncate(size)
    run(program("mkfs.vfat"), "-F", "16", image)
    for name, content in files.items():
        path = image.with_name(name)
        path.write_bytes(content)
        run(program("mcopy"), "-i", image, path, f"::{name}")
    for name in delete:
        run(program("mdel"), "-i", image, f"::{name}")
    return image
