"""Images to acquire: all zeros, all random, or a real file system or a piece of one; each size is made once."""

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
# A smaller file system holds nothing. A smaller image is cut out of one of this size.
MIXED_BYTES_MIN, PIECE_OF_BYTES = 4 * MIB, 32 * MIB


@dataclasses.dataclass(frozen=True)
class AcquiredImage:
    """An image file on disk, and its MD5."""

    path: str
    size_bytes: int
    md5: str

    def cache(self, warm: bool) -> None:
        """Caches all of it, or drops all caches."""
        if not warm:
            drop_caches()
            return
        with open(self.path, "rb") as file:
            while file.read(MIB):
                pass


class Images:
    """The images of a run, in the scratch space's directory on disk."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self._made: dict[tuple[str, int], Any] = {}

    def get(self, kind: str, size_bytes: int) -> Any:
        """Returns the image of a kind and size."""
        key = (kind, size_bytes)
        if key not in self._made:
            path = getattr(self, f"_{kind}")(size_bytes)
            self._made[key] = AcquiredImage(path, size_bytes, _md5(path))
        return self._made[key]

    def _path(self, kind: str, size_bytes: int) -> str:
        return os.path.join(self._scratch.disk_dir, f"{kind}-{iec(size_bytes)}.raw")

    def _zeroed(self, size_bytes: int) -> str:
        """Makes an image of written zeros, without holes."""
        path = self._path("zeroed", size_bytes)
        with open(path, "wb") as file:
            for _ in range(size_bytes // MIB):
                file.write(bytes(MIB))
        return path

    def _random(self, size_bytes: int) -> Any:
        return write_random(self._path("random", size_bytes), size_bytes)

    def _mixed(self, size_bytes: int) -> str:
        """Makes an ext4 image, three quarters full of this machine's own programs and libraries; or a piece of one, if it is too
        small for a file system."""
        if size_bytes < MIXED_BYTES_MIN:
            return self._piece(size_bytes)
        files = os.path.join(self._scratch.disk_dir, "tree")
        tree.make(files, max(20, size_bytes // (2 * MIB)), size_bytes * 3 // 4)
        path = image_of(self._scratch, files, size_bytes, os.path.basename(self._path("mixed", size_bytes)))
        shutil.rmtree(files)
        return path

    def _piece(self, size_bytes: int) -> str:
        """Cuts an image out of the middle of a mixed one, where its files are."""
        path = self._path("mixed", size_bytes)
        with open(self.get("mixed", PIECE_OF_BYTES).path, "rb") as whole, open(path, "wb") as file:
            whole.seek(PIECE_OF_BYTES // 2)
            file.write(whole.read(size_bytes))
        return path


def _md5(path: str) -> Any:
    digest = hashlib.md5()
    with open(path, "rb") as file:
        while piece := file.read(MIB):
            digest.update(piece)
    return digest.hexdigest()
