"""What is acquired: images that are all zeros, all random, or a real file system; each size made once."""

import dataclasses
import hashlib
import os
import shutil
from typing import Any

from bench.images.filesystem import image_of
from bench.scratch import Scratch, drop_caches, write_random
from cheetah.bench import tree
from cheetah.bench.units import MIB, iec

KINDS = ("zeroed", "random", "mixed")


@dataclasses.dataclass(frozen=True)
class Image:
    """An image file on the disk, and its MD5."""

    path: str
    size_bytes: int
    md5: str

    def cache(self, warm: bool) -> None:
        """Has all of it in memory, or nothing of it (nor of any other file)."""
        if not warm:
            drop_caches()
            return
        with open(self.path, "rb") as file:
            while file.read(MIB):
                pass


class Images:
    """The images of a run, in a scratch space's directory on the disk."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self._made: dict[tuple[str, int], Any] = {}

    def get(self, kind: str, size_bytes: int) -> Any:
        """The image of that kind and size."""
        key = (kind, size_bytes)
        if key not in self._made:
            path = getattr(self, f"_{kind}")(size_bytes)
            self._made[key] = Image(path, size_bytes, _md5(path))
        return self._made[key]

    def _path(self, kind: str, size_bytes: int) -> str:
        return os.path.join(self._scratch.disk_dir, f"{kind}-{iec(size_bytes)}.raw")

    def _zeroed(self, size_bytes: int) -> str:
        """Zeros that were written: the file has no hole in it."""
        path = self._path("zeroed", size_bytes)
        with open(path, "wb") as file:
            for _ in range(size_bytes // MIB):
                file.write(bytes(MIB))
        return path

    def _random(self, size_bytes: int) -> Any:
        return write_random(self._path("random", size_bytes), size_bytes)

    def _mixed(self, size_bytes: int) -> str:
        """ext4, three quarters full of this machine's own programs and libraries."""
        files = os.path.join(self._scratch.disk_dir, "tree")
        tree.make(files, max(20, size_bytes // (2 * MIB)), size_bytes * 3 // 4)
        path = image_of(self._scratch, files, size_bytes, os.path.basename(self._path("mixed", size_bytes)))
        shutil.rmtree(files)
        return path


def _md5(path: str) -> Any:
    digest = hashlib.md5()
    with open(path, "rb") as file:
        while piece := file.read(MIB):
            digest.update(piece)
    return digest.hexdigest()
