"""The journal of a triage on a disk that becomes full, and what it takes over of an earlier one."""

import errno
import hashlib
from pathlib import Path
from typing import Any

import pytest

from cheetah.error import Error
from cheetah.triage.hub.journal import NOTHING, Journal, Vouched
from cheetah.triage.tables.store import Parts
from cheetah.triage.task import Result, Task

TASKS = [Task("listing", 0, (number,)) for number in range(3)]


class Disk:
    """A file on a disk with room for a given number of further bytes."""

    def __init__(self, file: Any, room: int):
        self._file, self.room = file, room

    def write(self, content: memoryview) -> int:
        """Writes as much as there is room for."""
        part = content[: self.room]
        if not part:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= len(part)
        return int(self._file.write(part))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def test_a_line_that_a_full_disk_cuts_off_at_any_byte_leaves_the_journal_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    room = 0
    while True:
        path.unlink(missing_ok=True)
        journal = Journal(path, Parts(tmp_path / "parts"))
        journal.add(TASKS[0], Result())
        first = path.read_bytes()
        disk = journal._file = Disk(journal._file, room)  # type: ignore[assignment]
        try:
            journal.add(TASKS[1], Result())
        except OSError as full:
            assert full.errno == errno.ENOSPC
            assert path.read_bytes() == first, room
            disk.room = 1 << 20
            journal.add(TASKS[1], Result())
        else:
            break
        assert path.read_bytes().count(b"\n") == 2
        assert set(Journal(path, Parts(tmp_path / "parts")).known) == {TASKS[0].id, TASKS[1].id}
        room += 1
    assert room > 10


def test_only_what_is_vouched_for_is_taken_over(tmp_path: Path) -> None:
    path, parts, vouched = tmp_path / "journal.jsonl", Parts(tmp_path / "parts"), list[Vouched]()
    journal = Journal(path, parts, vouched=NOTHING, witness=vouched.append)
    journal.add(TASKS[0], Result())
    journal.close()
    journal = Journal(path, parts, vouched=vouched[-1], witness=vouched.append)
    journal.add(TASKS[1], Result())
    journal.sync()
    content = path.read_bytes()
    assert len(vouched) == 2 and vouched[0] == vouched[1] == Vouched(len(content) // 2, vouched[0].sha256)
    assert vouched[0].sha256 == hashlib.sha256(content[: vouched[0].length]).hexdigest()

    assert set(Journal(path, parts, vouched=vouched[-1]).known) == {TASKS[0].id}
    assert path.read_bytes() == content[: vouched[0].length]
    path.write_bytes(content)
    assert not Journal(path, parts, vouched=NOTHING).known
    for changed in (content[: vouched[0].length - 1], content.replace(b"listing", b"content", 1)):
        path.write_bytes(changed)
        with pytest.raises(Error, match="vouches for"):
            Journal(path, parts, vouched=vouched[0])
        assert path.read_bytes() == changed
    path.unlink()
    assert not Journal(path, parts, vouched=vouched[0]).known
