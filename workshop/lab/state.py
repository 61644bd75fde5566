"""The state of a lab while it is up, so that it can be removed completely when its process dies.

`/run/cheetah-lab/NAME.json` is created before anything else of the lab, and removed last. The owner holds a lock on
it, which the kernel releases however the owner ends. A lab whose file is not locked, and which was not left up on
purpose, is abandoned.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os

STATE_DIR = "/run/cheetah-lab"
SUFFIX = ".json"


@dataclasses.dataclass
class LabState:
    """The content of a state file: whether the lab is to stay without an owner."""

    stays: bool = False


class StateFile:
    """One lab's state file, locked between `claim` and `release`."""

    def __init__(self, name: str) -> None:
        self.path = os.path.join(STATE_DIR, name + SUFFIX)
        self._descriptor: int | None = None

    def claim(self, create: bool) -> bool:
        """Locks the file, creating it if wanted; returns False if it is locked or missing."""
        os.makedirs(STATE_DIR, exist_ok=True)
        while True:
            if create and self._create():
                return True
            try:
                descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                if create:
                    continue
                return False
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return False
            if self._is_still(descriptor):
                self._descriptor = descriptor
                return True
            # Its owner removed it just now.
            os.close(descriptor)

    def _create(self) -> bool:
        """Creates the file, locked from its first moment, so that no sweep finds it without an owner; returns False if
        it exists."""
        descriptor = os.open(STATE_DIR, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            # Python follows the symbolic link in /proc only if a descriptor of a directory is given as well.
            os.link(f"/proc/self/fd/{descriptor}", self.path, src_dir_fd=descriptor, follow_symlinks=True)
        except FileExistsError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def _is_still(self, descriptor: int) -> bool:
        try:
            return os.stat(self.path).st_ino == os.fstat(descriptor).st_ino
        except FileNotFoundError:
            return False

    def read(self) -> LabState:
        """Returns the state; a missing or incomplete file has none."""
        try:
            with open(self.path, encoding="utf-8") as file:
                return LabState(**json.load(file))
        except (FileNotFoundError, ValueError, TypeError):
            return LabState()

    def write(self, remembered: LabState) -> None:
        """Replaces the content; the file must be claimed."""
        assert self._descriptor is not None
        text = json.dumps(dataclasses.asdict(remembered)).encode()
        os.pwrite(self._descriptor, text, 0)
        os.ftruncate(self._descriptor, len(text))

    def release(self) -> None:
        """Releases the lock; the file stays."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def remove(self) -> None:
        """Removes the file and releases the lock."""
        if self._descriptor is not None:
            os.remove(self.path)
            self.release()


def names() -> list[str]:
    """Returns the labs that have a state file."""
    try:
        entries = os.listdir(STATE_DIR)
    except FileNotFoundError:
        return []
    return sorted(entry[: -len(SUFFIX)] for entry in entries if entry.endswith(SUFFIX))
