"""The directory of a result: its content, its lock, and whether a run may resume in it."""

import contextlib
import fcntl
import json
import pathlib
import shutil
from typing import IO, Any

from cheetah.durable import for_owner, refuse_foreign, replace
from cheetah.triage.hub import space
from cheetah.triage.hub.custody import LOG
from cheetah.triage.outputs import OUTPUTS
from cheetah.triage.reading.shared_source import is_same

GUARD = "triage.json"
JOURNAL = "journal.jsonl"
PARTS = "parts"
LOCK = ".lock"
VERSION = 3


class Misuse(Exception):
    """The command makes no sense as given: one sentence."""


def _is_guard(path: pathlib.Path) -> bool:
    """Returns whether a file is the guard of a triage, of whatever version."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and {"version", "source", "settings"} <= found.keys()


class Folder:
    """A result's directory, locked while a run uses it."""

    def __init__(self, path: str, fresh: bool = False):
        self.path = pathlib.Path(path)
        ours = (self.path / GUARD).exists()
        if ours and fresh and not _is_guard(self.path / GUARD):
            raise Misuse(f"{self.path / GUARD} is not of a triage, so nothing here is removed; name another directory")
        if self.path.exists() and not ours and any(one.name not in (LOCK, LOG) for one in self.path.iterdir()):
            raise Misuse(f"{path} is not empty and holds no triage; name another directory")
        space.check_start(self.path)
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = self._locked()
        if fresh and ours:
            self._clear()

    def _locked(self) -> IO[bytes]:
        refuse_foreign(self.path / LOCK)
        # It is never written to: it may be a hard link to another file.
        file = open(self.path / LOCK, "ab", opener=for_owner)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise Misuse(f"another triage is running in {self.path}; wait for it, or name another directory") from None
        return file

    def _clear(self) -> None:
        # Nothing is removed if the new guard could not be written.
        refuse_foreign(self.path / f"{GUARD}.partial")
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
            raise Misuse(f"{guard} is not of a triage; name another directory") from None
        if found.get("version") != VERSION:
            raise Misuse(f"{self.path} was made by another version of this program; --fresh starts over")
        settings = found["settings"]
        different = sorted(name for name in binding if settings.get(name) != binding[name])
        # Of other opened volumes, other bytes are read of the same source.
        if not is_same(found["source"], identity) and "unlocked" not in different:
            raise Misuse(
                f"{self.path} holds the triage of another source ({found['source'].get('name')}), or of one that has "
                "changed since; name another directory, or start over with --fresh"
            )
        if settings != binding:
            raise Misuse(
                f"{self.path} holds a triage with other settings ({', '.join(different)}); use the same, name another "
                "directory, or start over with --fresh"
            )
        return True

    def binding(self) -> bytes:
        """The content of the file that binds the directory."""
        return (self.path / GUARD).read_bytes()

    def close(self) -> None:
        """Releases the lock. Removes the directory if the run ended before it wrote anything there."""
        if all(one.name == LOCK for one in self.path.iterdir()):
            (self.path / LOCK).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self.path.rmdir()
        self._lock.close()
