"""Gives out the parts of a run, fetches the results, and keeps the record, from which the same command goes on."""

import dataclasses
import fcntl
import json
import os
import pathlib
import secrets
import shutil
import tarfile
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from cheetah import durable
from cheetah.run.at_worker import Job, Left
from cheetah.run.parts import Part, divide
from cheetah.run.source import Source, is_same
from cheetah.run.unpack import unpack
from cheetah.run.workers import ATTEMPTS, Workers

RECORD = "run.json"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a part ended."""

    number: int
    begin: int
    end: int
    host: str
    exit_code: int | None
    seconds: float
    problem: str
    left_out: int = 0
    """How many links and special files of the program are not among its results."""
    doubts: tuple[str, ...] = ()
    """What was lost or in doubt of the source when the part was run."""

    @property
    def is_done(self) -> bool:
        """Whether the program ended well."""
        return self.exit_code == 0 and not self.problem


class Misuse(OSError):
    """The folder belongs to another run."""


class Hub:
    """A run that leaves its results in a folder. Raises Misuse if those of another run are there.

    With `parts` of 0, an interrupted run goes on with its own division, and another has `usual` parts. `doubts` are sentences about what
    is lost or in doubt of the source, for the record."""

    def __init__(
        self,
        source: Source,
        command: tuple[str, ...],
        out: str,
        parts: int,
        usual: int = 1,
        *,
        doubts: Sequence[str] = (),
    ) -> None:
        self._out, self._samples, self._doubts = pathlib.Path(out), source.samples, tuple(doubts)
        self._facts: dict[str, Any] = {
            "source": source.name,
            "size_bytes": source.size_bytes,
            "command": list(command),
        }
        self._out.mkdir(parents=True, exist_ok=True)
        self._release = self._held()
        try:
            self._outcomes = self._earlier()
            count = self._facts.setdefault("parts", parts or usual)
            if parts not in (0, count):
                raise Misuse(
                    f"{self._out} is the result of a run in {count} parts; name another folder, or give --parts {count}"
                )
        except BaseException:
            self._release()
            raise
        self._parts = divide(source.size_bytes, count)
        self._job = Job(secrets.token_hex(8), source, command)

    def _held(self) -> Callable[[], object]:
        """Keeps other runs out of the folder; returns what lets them in. Two would mix their results."""
        folder = os.open(self._out, os.O_RDONLY | os.O_DIRECTORY)
        release = weakref.finalize(self, os.close, folder)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            release()
            raise Misuse(f"another run writes to {self._out}; wait until it ends, or name another folder") from None
        except OSError:
            # A file system without locks.
            pass
        return release

    def _earlier(self) -> dict[int, Outcome]:
        """Returns the parts that an earlier run of the same command has done."""
        record = self._out / RECORD
        try:
            earlier = json.loads(record.read_bytes())
        except FileNotFoundError:
            if any(self._out.iterdir()):
                raise Misuse(f"{self._out} holds something else; name a new or an empty folder") from None
            return {}
        except ValueError as error:
            raise Misuse(f"{record} is no record of a run; name another folder") from error
        if any(earlier.get(name) != value for name, value in self._facts.items()):
            raise Misuse(f"{self._out} is the result of another run; name another folder, or give the same command")
        if not is_same(earlier.get("samples", ()), self._samples):
            raise Misuse(
                f"{self._out} is the result of a run on a source with another content, or too little of it can be read to compare; "
                "name another folder"
            )
        self._facts["parts"] = earlier["parts"]
        known: Any = {"doubts": earlier.get("doubts", ())}
        outcomes = [{**known, **one} for one in earlier["outcomes"]]
        done = [Outcome(**{**one, "doubts": tuple(one["doubts"])}) for one in outcomes]
        return {one.number: one for one in done if one.is_done}

    @property
    def doubts(self) -> list[str]:
        """What was lost or in doubt of the source while any part was run, and what is today."""
        earlier = [doubt for outcome in self._outcomes.values() for doubt in outcome.doubts]
        return list(dict.fromkeys([*self._doubts, *earlier]))

    def go(self, workers: Workers, tell: Callable[[Outcome], None]) -> list[Outcome]:
        """Runs all parts that are not done; tells of each as it ends, and returns all."""
        left = [part for part in self._parts if part.number not in self._outcomes]
        try:
            for _ in range(ATTEMPTS):
                lost = []
                for part, ended in workers.perform(self._job, left):
                    outcome, is_lost = self._outcome(workers, part, ended)
                    if is_lost:
                        lost.append(part)
                    outcome = dataclasses.replace(outcome, doubts=self._doubts)
                    self._outcomes[part.number] = outcome
                    self._save()
                    tell(outcome)
                left = lost
                if not left:
                    break
        finally:
            workers.end(self._job)
            self._release()
        return [self._outcomes[part.number] for part in self._parts if part.number in self._outcomes]

    def _outcome(self, workers: Workers, part: Part, ended: "Left | str") -> tuple[Outcome, bool]:
        """Fetches what is left of a part; returns whether that was lost with its worker, too."""
        if isinstance(ended, str):
            return Outcome(part.number, part.begin, part.end, "", None, 0.0, ended), True
        exit_code, problem, is_lost, left_out = ended.exit_code, ended.problem, False, 0
        if ended.archive:
            try:
                left_out = self._fetch(workers, part, ended)
            except ConnectionError as error:
                exit_code, problem, is_lost = None, str(error), True
            except tarfile.TarError as error:
                exit_code, problem, is_lost = None, f"its results from {ended.host} are damaged: {error}", True
        seconds = round(ended.seconds, 3)
        return Outcome(part.number, part.begin, part.end, ended.host, exit_code, seconds, problem, left_out), is_lost

    def _fetch(self, workers: Workers, part: Part, left: Left) -> int:
        """Unpacks the archive of a part under its name, in place of an earlier attempt's; returns how many entries are left out."""
        archive, unpacked = self._out / f".{part.name}.tar", self._out / f".{part.name}"
        try:
            with open(archive, "wb") as file:
                for piece in workers.fetch(left):
                    file.write(piece)
            shutil.rmtree(unpacked, ignore_errors=True)
            left_out = unpack(archive, unpacked)
            final = self._out / part.name
            shutil.rmtree(final, ignore_errors=True)
            os.rename(unpacked, final)
            # Before the record says that the part is done: nothing runs it again then.
            durable.store_names(self._out)
            return left_out
        finally:
            archive.unlink(missing_ok=True)
            shutil.rmtree(unpacked, ignore_errors=True)

    def _save(self) -> None:
        outcomes = [dataclasses.asdict(self._outcomes[number]) for number in sorted(self._outcomes)]
        known = {**self._facts, "samples": self._samples, "doubts": self.doubts}
        content = json.dumps({**known, "outcomes": outcomes}, indent=2) + "\n"
        durable.replace(self._out / RECORD, content.encode())
