"""The settings of a triage. Those that the result depends on are stored with it, and a run resumes only with the
same."""

import dataclasses
import hashlib
import os
from typing import Any

from cheetah import path_text

HASHES = ("md5", "sha1", "sha256")
LISTS = ("known", "wanted", "keywords", "yara")
"""The settings that name files with what to look for, and with what is known."""
CASE = ("case_number", "evidence_number", "examiner", "description", "notes")
"""The names of case data, as in an acquisition."""
MAX_FILE_BYTES = 1 << 30
QUICK_FILES = 500
"""The number of top-ranked files that `--quick` reads."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """All options of a run, pickled to each worker. Paths are absolute; `source` is a text (`cheetah.path_text`)."""

    source: str
    out: str
    quick: bool = False
    workers: int = 0
    """0: one per processor."""
    scheduler: str | None = None
    known: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    yara: tuple[str, ...] = ()
    hashes: tuple[str, ...] = HASHES
    max_file: int = MAX_FILE_BYTES
    """Bytes read of each file; a larger file has the state "partial"."""
    unallocated: bool = True
    unlock: tuple[str, ...] = ()
    """Files with the keys that are tried on encrypted volumes, which the hub alone reads."""
    beside: tuple[str, ...] = ()
    """Other sources that have parts of the same arrays and volume groups."""
    shadow_copies: tuple[str, ...] = ()
    """The names of shadow copies of NTFS volumes whose files are listed, too; all of them with "all"."""
    sector_size: int | None = None
    """The size of the source's sectors in bytes, if the user gives it."""
    case: tuple[tuple[str, str], ...] = ()
    """Case data for the record, as names and texts: see `CASE`."""
    at_nodes: bool = False
    """Whether atoms of the rules are searched where the bytes lie, so that only files that may match are read."""
    lend_key: tuple[str, ...] = ()
    """The nodes that are lent the key of a sealed drive for that, or "all"."""
    fresh: bool = False
    json: bool = False

    def binding(self) -> dict[str, Any]:
        """Returns the settings that the result depends on, with digests of the lists."""
        return {
            "quick": self.quick,
            "hashes": list(self.hashes),
            "max_file": self.max_file,
            "unallocated": self.unallocated and not self.quick,
            "sector_size": self.sector_size,
            **{kind: [_digest(path) for path in sorted(getattr(self, kind))] for kind in LISTS},
            **({"at_nodes": True} if self.at_nodes else {}),
        }

    def published(self) -> dict[str, Any]:
        """Returns the settings that a report names, with paths as texts. No other becomes public."""
        return {
            "quick": self.quick,
            **{kind: [path_text.to_text(path) for path in getattr(self, kind)] for kind in LISTS},
            "hashes": list(self.hashes),
            "max_file": self.max_file,
            "unallocated": self.unallocated,
            **({} if self.sector_size is None else {"sector_size": self.sector_size}),
            **({"at_nodes": True} if self.at_nodes else {}),
        }


def _digest(path: str) -> dict[str, Any]:
    """Returns a list's name, size and digest."""
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return {
            "name": path_text.to_text(os.path.basename(path)),
            "size_bytes": file.tell(),
            "sha256": digest.hexdigest(),
        }
