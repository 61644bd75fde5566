"""Tampering with custody logs: every change must be found."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from attack.images import mutated
from attack.stage import Broken, Stage

Lines = list[bytes]


def _altered(lines: Lines, at: int) -> None:
    lines[at] = lines[at].replace(b"a", b"b", 1)


def _swapped(lines: Lines) -> None:
    lines[0], lines[1] = lines[1], lines[0]


def _renumbered(lines: Lines) -> None:
    """Removes a record, and renumbers the others."""
    del lines[1]
    for at, line in enumerate(lines):
        record = json.loads(line)
        for key in ("number", "sequence", "seq", "record"):
            if key in record:
                record[key] = at
        lines[at] = json.dumps(record).encode() + b"\n"


TAMPERINGS: dict[str, Callable[[Lines], object]] = {
    "first record altered": lambda lines: _altered(lines, 0),
    "last record altered": lambda lines: _altered(lines, -1),
    "first record removed": lambda lines: lines.pop(0),
    "record removed": lambda lines: lines.pop(1),
    "last record removed": lambda lines: lines.pop(),
    "records swapped": _swapped,
    "record repeated": lambda lines: lines.insert(1, lines[1]),
    "record of another log inserted": lambda lines: lines.insert(1, b'{"event":"finished"}\n'),
    "record removed and the rest renumbered": _renumbered,
    "garbage appended": lambda lines: lines.append(b"\xff\0garbage\n"),
}


def tampering(stage: Stage) -> None:
    """Changes a custody log in ten ways, and then at random."""
    image = stage.path(".raw")
    stage.must("acquire", stage.image, image)
    log = Path(f"{image}.custody")
    original = log.read_bytes()
    stage.must("verify", log)
    for name, tamper in TAMPERINGS.items():
        lines = original.splitlines(keepends=True)
        tamper(lines)
        _must_be_found(stage, log, name, b"".join(lines), original)
    for count in range(stage.times(50, 500)):
        _must_be_found(stage, log, f"random change {count}", mutated(stage, original), original)
    log.write_bytes(original)
    stage.must("verify", log)


def _must_be_found(stage: Stage, log: Path, what: str, content: bytes, original: bytes) -> None:
    # The newline of the last record is not part of it: the next append supplies a missing one.
    if content in (original, original.removesuffix(b"\n")):
        return
    log.write_bytes(content)
    code, _, complaint = stage.run("verify", log)
    if code != 3:
        # In a folder of its own: beside a custody log, the storage benchmark refuses to write.
        kept = Path(tempfile.mkdtemp(prefix="cheetah-attack-"), "tampered.custody")
        kept.write_bytes(content)
        raise Broken(f"{what} is not found: exit code {code}, {complaint.strip()}; see {kept}")
