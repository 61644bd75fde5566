"""Attacks on the record of a sealed drive: copies of it from before are put back."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from attack.liars import check_words
from attack.stage import Broken, Stage
from attack.survival import write
from attack.wire import FLUSH, READ, Client

UNIT = 4096
UNITS = 64
SIZE = UNIT * UNITS
ROUNDS = 3
"""The number of times that a writer opens the drive."""
FLUSHES = 3


@dataclass
class Sealed:
    """A sealed drive, its content, and all that its drive file and record ever were."""

    stage: Stage
    drive: Path
    content: bytearray = field(default_factory=lambda: bytearray(SIZE))
    states: list[tuple[bytes, bytes]] = field(default_factory=list)

    @property
    def record(self) -> Path:
        """The record beside the drive file."""
        return Path(f"{self.drive}.seal")

    def keep(self) -> None:
        """Keeps a copy of drive file and record."""
        self.states.append((self.drive.read_bytes(), self.record.read_bytes()))

    def put(self, drive: bytes, record: bytes) -> None:
        """Puts copies in place."""
        self.drive.write_bytes(drive)
        self.record.write_bytes(record)

    @contextmanager
    def export(self, *more: str) -> Iterator[Client]:
        """Exports the drive, and connects."""
        path = self.stage.path(".sock")
        words: tuple[str | Path, ...] = ("export", self.drive, "--unix", path, "--prefetch", "0", *more)
        with self.stage.server("file", *words), Client(str(path)) as client:
            client.go("")
            yield client

    def fill(self) -> None:
        """Opens the drive for writing, writes some units anew, and flushes, several times."""
        with self.export("--writable") as client:
            self.keep()
            for _ in range(FLUSHES):
                for unit in self.stage.random.sample(range(UNITS), UNITS // 4):
                    data = self.stage.random.randbytes(UNIT)
                    if write(client, unit * UNIT, data):
                        raise Broken("a write to a sealed drive fails")
                    self.content[unit * UNIT : (unit + 1) * UNIT] = data
                client.request(FLUSH, 0, 0)
                if client.reply()[0]:
                    raise Broken("a flush of a sealed drive fails")
                self.keep()
        self.keep()


def rolled_back(stage: Stage) -> None:
    """Puts back each record that a drive ever had, alone and with its drive file. It opens nothing, or each unit is as it was
    written last, an error, or zeros with a warning; nothing returns old content."""
    key = stage.path(".key")
    stage.must("drive", "identity", key)
    there = stage.having(CHEETAH_IDENTITY=key)
    with stage.node("file") as node:
        sealed = Sealed(there, stage.path(".drive"))
        words = ("--nodes", node.ready["nbd"], "--size", str(SIZE), "--seal", "--layout", "linear")
        there.must("create", sealed.drive, *words)
        sealed.keep()
        for _ in range(ROUNDS):
            sealed.fill()
        drive, newest = sealed.states[-1]
        for number, (older_drive, older) in enumerate(sealed.states[:-1]):
            for with_drive in (False, True):
                sealed.put(older_drive if with_drive else drive, older)
                try:
                    _must_not_be_believed(sealed, with_drive)
                except Broken as error:
                    both = "with its drive file" if with_drive else "alone"
                    raise Broken(f"record {number + 1} of {len(sealed.states)}, {both}: {error}") from error
        sealed.put(drive, newest)
        there.must("verify", sealed.drive)
        if _saved(sealed) != (bytes(sealed.content), False):
            raise Broken("the drive with its own record is not whole")


def _saved(sealed: Sealed) -> tuple[bytes | None, bool]:
    """Saves the drive. Returns its content, or nothing if that fails, and whether it warns of what is unverified."""
    copy = sealed.stage.path(".raw")
    ran = sealed.stage.run("save", sealed.drive, copy)
    check_words(ran)
    if ran[0] and copy.exists():
        raise Broken("a save that failed left an image under its final name")
    return None if ran[0] else copy.read_bytes(), "unverified" in ran[2]


def _must_not_be_believed(sealed: Sealed, is_older: bool) -> None:
    """With both files from before, space that had never been written then is zeros: no record says otherwise."""
    verified = sealed.stage.run("verify", sealed.drive, "--no-log")
    check_words(verified)
    saved, is_warned = _saved(sealed)
    if saved is None and verified[0] == 0 or saved is not None and verified[0] != 0 and not is_warned:
        raise Broken(f"verify ends with {verified[0]}, and save {'fails' if saved is None else 'succeeds'}")
    if saved is not None:
        _compare(sealed, 0, saved, zeros=is_older or is_warned)
    if "its seal record is older than the drive" in verified[2]:
        if sealed.stage.run("export", sealed.drive, "--unix", sealed.stage.path(".sock"))[0] != 3:
            raise Broken("verify calls the record older, and export serves the drive")
        return
    with sealed.export() as client:
        for unit in range(UNITS):
            client.request(READ, unit * UNIT, UNIT)
            error, data = client.reply(UNIT)
            if not error:
                _compare(sealed, unit, data, zeros=is_older or is_warned)


def _compare(sealed: Sealed, first: int, found: bytes, zeros: bool) -> None:
    """Units must be as they were written last, or zeros if those are accepted."""
    for at in range(0, len(found), UNIT):
        unit, place = found[at : at + UNIT], first * UNIT + at
        if unit != sealed.content[place : place + UNIT] and (any(unit) or not zeros):
            raise Broken(f"unit {place // UNIT} is read as it was before")
