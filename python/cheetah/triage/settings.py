"""What was asked for. What the result depends on is kept beside it, and an interrupted run goes on only with the
same."""

import dataclasses
import hashlib
import os
from typing import Any

HASHES = ("md5", "sha1", "sha256")
MAX_FILE_BYTES = 1 << 30
QUICK_FILES = 500
"""How many of the top-ranked files `--quick` reads."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """All of a run's options; pickled to each worker. Paths are absolute."""

    source: str
    out: str
    quick: bool = False
    workers: int = 0
    """0: one for each processor."""
    scheduler: str | None = None
    known: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    yara: tuple[str, ...] = ()
    hashes: tuple[str, ...] = HASHES
    max_file: int = MAX_FILE_BYTES
    """Bytes; of a larger file only the beginning is read, and its state is "partial"."""
    unallocated: bool = True
    fresh: bool = False
    json: bool = False

    def binding(self) -> dict[str, Any]:
        """What the result depends on, lists by their content: a run with another of these is another run."""
        return {
            "quick": self.quick,
            "hashes": list(self.hashes),
            "max_file": self.max_file,
            "unallocated": self.unallocated and not self.quick,
            **{
                kind: [_digest(path) for path in sorted(getattr(self, kind))]
                for kind in ("known", "wanted", "keywords", "yara")
            },
        }


def _digest(path: str) -> dict[str, Any]:
    """A list, by name, size and content."""
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return {"name": os.path.basename(path), "size": file.tell(), "sha256": digest.hexdigest()}
