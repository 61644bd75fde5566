"""The directory of a result: its content, its lock, and whether a run may resume in it."""

import fcntl
import json
import pathlib
import shutil
from typing import IO, Any

from cheetah.durable import replace
from cheetah.triage.hub.custody import LOG
from cheetah.triage.hub.shared_source import is_same

GUARD = "triage.json"
JOURNAL = "journal.jsonl"
PARTS = "parts"
LOCK = ".lock"
OUTPUTS = ("bodyfile.txt", "files.parquet", "timeline.parquet", "findings.parquet", "summary.json", "report.html")
VERSION = 2


class Misuse(Exception):
    """The command makes no sense as given: one sentence."""


class Folder:
    """A result's directory, locked while a run uses it."""

    def __init__(self, path: str, fresh: bool = False):
        self.path = pathlib.Path(path)
        ours = (self.path / GUARD).exists()
        if self.path.exists() and not ours and any(one.name not in (LOCK, LOG) for one in self.path.iterdir()):
            raise Misuse(f"{path} is not empty and holds no triage; name another directory")
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = self._locked()
        if fresh and ours:
            self._clear()

    def _locked(self) -> IO[str]:
        file = open(self.path / LOCK, "w", encoding="ascii")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise Misuse(f"another triage is running in {self.path}; wait for it, or name another directory") from None
        return file

    def _clear(self) -> None:
        for name in (JOURNAL, *OUTPUTS, GUARD):
            (self.path / name).unlink(missing_ok=True)
        shutil.rmtree(self.path / PARTS, ignore_errors=True)

    def bind(self, identity: dict[str, Any], binding: dict[str, Any]) -> bool:
        """Binds the directory to this source and these settings; returns whether it was bound before. Raises Misuse if
        it is bound to others."""
        wanted = {"version": VERSION, "source": identity, "settings": binding}
        guard = self.path / GUARD
        if not guard.exists():
            replace(guard, json.dumps(wanted, indent=1).encode() + b"\n")
            return False
        try:
            found = json.loads(guard.read_bytes())
        except ValueError:
            raise Misuse(f"{guard} cannot be read; --fresh starts over") from None
        if found.get("version") != VERSION:
            raise Misuse(f"{self.path} was made by another version of this program; --fresh starts over")
        if not is_same(found["source"], identity):
            raise Misuse(
                f"{self.path} holds the triage of another source ({found['source'].get('name')}), or of one that has "
                "changed since; name another directory, or start over with --fresh"
            )
        if found["settings"] != binding:
            different = sorted(name for name in binding if found["settings"].get(name) != binding[name])
            raise Misuse(
                f"{self.path} holds a triage with other settings ({', '.join(different)}); use the same, name another "
                "directory, or start over with --fresh"
            )
        return True

    def binding(self) -> bytes:
        """The content of the file that binds the directory."""
        return (self.path / GUARD).read_bytes()

    def close(self) -> None:
        """Releases the lock."""
        self._lock.close()
