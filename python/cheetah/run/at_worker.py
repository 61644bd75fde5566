"""Runs at a worker: mounts the source, runs the program on a part, and hands out what it left.

A mount serves all parts of a run in this process, and ends with it. Everything lies in one folder for each run, which is removed at
the end of the run.
"""

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from cheetah import path_text
from cheetah.run.parts import Part, words
from cheetah.run.source import Source, is_same

READY_S = 120.0
STOP_S = 20.0
OUTPUTS = ("stdout", "stderr")
ENDED = "the run has ended"


@dataclasses.dataclass(frozen=True)
class Job:
    """What is run: the same for all parts."""

    run: str
    source: Source
    command: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Left:
    """What is left of a part at a worker, as an archive; `exit_code` is None if the program could not be run."""

    host: str
    exit_code: int | None
    seconds: float
    problem: str
    archive: str
    archive_bytes: int


class Mount:
    """A source as a file. It ends with this process."""

    def __init__(self, job: Job, folder: str) -> None:
        self._log = os.path.join(folder, "mount.log")
        directory = os.path.join(folder, "mount")
        os.mkdir(directory)
        program = os.environ.get("CHEETAH_BINARY") or shutil.which("cheetah") or "cheetah"
        argv = ["setpriv", "--pdeathsig", "TERM", program, "--json", "mount", job.source.name, directory]
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            self.image = os.path.join(directory, os.path.basename(path_text.to_path(self._ready())))
            _check(job.source, self.image)
        except BaseException:
            self.end()
            raise

    def _ready(self) -> str:
        until = time.monotonic() + READY_S
        while True:
            ended = self._process.poll() is not None
            for line in _lines(self._log):
                if line.get("event") == "ready":
                    return str(line["file"])
                if "error" in line:
                    raise OSError(str(line["error"]))
            if ended or time.monotonic() > until:
                raise OSError(f"the mount {'ended at once' if ended else f'is not ready after {READY_S:g} s'}")
            time.sleep(0.02)

    def has_ended(self) -> bool:
        """Whether the source can no longer be read there."""
        return self._process.poll() is not None

    def end(self) -> None:
        """Unmounts."""
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _check(source: Source, image: str) -> None:
    """Raises OSError if a file is not what the source is where the run was started."""
    found = os.path.getsize(image)
    if found != source.size_bytes:
        raise OSError(f"{source.name} has {found} bytes here, and {source.size_bytes} where the run was started")
    with open(image, "rb", buffering=0) as file:
        here = Source.of(source.name, found, lambda offset, length: os.pread(file.fileno(), length, offset))
    if not is_same(here.samples, source.samples):
        raise OSError(
            f"{source.name} has another content here than where the run was started, or too little of it can be read to compare"
        )


def _lines(path: str) -> list[dict[str, object]]:
    # Opened anew: a process that writes to the file shares the offset of the one that it was given.
    with open(path, "rb") as log:
        lines = log.read().splitlines()
    found = []
    for line in lines:
        with contextlib.suppress(ValueError):
            value = json.loads(line)
            if isinstance(value, dict):
                found.append(value)
    return found


class Place:
    """This process's folder and mount for a run."""

    def __init__(self, job: Job) -> None:
        self.folder = tempfile.mkdtemp(prefix=f"cheetah-run-{job.run}-")
        self._running: set[subprocess.Popen[bytes]] = set()
        self._left = threading.Condition()
        self._busy = 0
        self._is_ended = False
        try:
            self.mount = Mount(job, self.folder)
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """Marks that a part is worked on. Raises OSError if the run has ended."""
        with self._left:
            if self._is_ended:
                raise OSError(ENDED)
            self._busy += 1
        try:
            yield
        finally:
            with self._left:
                self._busy -= 1
                self._left.notify_all()

    @contextlib.contextmanager
    def started(self, argv: Sequence[str], **more: Any) -> Iterator["subprocess.Popen[bytes]"]:
        """Starts a program, which ends with this place."""
        with self._left:
            if self._is_ended:
                raise OSError(ENDED)
            process = subprocess.Popen(argv, start_new_session=True, **more)
            self._running.add(process)
        try:
            yield process
        finally:
            with self._left:
                self._running.discard(process)

    def end(self) -> None:
        """Ends the programs, unmounts, and removes the folder, once no part is worked on any more."""
        with self._left:
            self._is_ended = True
            for process in self._running:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            self._left.wait_for(lambda: self._busy == 0, STOP_S)
        self.mount.end()
        shutil.rmtree(self.folder, ignore_errors=True)


_places: dict[str, list[Place]] = {}
_ended: set[str] = set()
_lock = threading.Lock()


def perform(job: Job, part: Part) -> Left:
    """Runs the program on a part; everything that goes wrong is in the answer."""
    begun = time.monotonic()
    host = socket.gethostname()
    try:
        with _lock:
            if job.run in _ended:
                raise OSError(ENDED)
            places = _places.setdefault(job.run, [])
            # A mount that has ended shows nothing more. What programs left beside it is still fetched.
            if not places or places[-1].mount.has_ended():
                places.append(Place(job))
            place = places[-1]
        with place.busy():
            work = tempfile.mkdtemp(prefix=f"{part.name}-", dir=place.folder)
            exit_code, problem = _run(place, words(job.command, part, place.mount.image), work)
            archive = f"{work}.tar"
            with tarfile.open(archive, "w") as file:
                file.add(work, arcname=".")
            shutil.rmtree(work)
            archive_bytes = os.path.getsize(archive)
        return Left(host, exit_code, time.monotonic() - begun, problem, archive, archive_bytes)
    except OSError as error:
        return Left(host, None, time.monotonic() - begun, str(error), "", 0)


def _run(place: Place, command: Sequence[str], work: str) -> tuple[int | None, str]:
    """Runs the program in its folder `out`, beside what it prints."""
    out = os.path.join(work, "out")
    os.mkdir(out)
    with contextlib.ExitStack() as stack:
        stdout, stderr = (stack.enter_context(open(os.path.join(work, name), "wb")) for name in OUTPUTS)
        argv = ["setpriv", "--pdeathsig", "TERM", "--", *command]
        with place.started(argv, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, cwd=out) as process:
            code = process.wait()
    if place.mount.has_ended():
        return code, f"the mount of the source ended before {command[0]} did"
    if code < 0:
        return code, f"{command[0]} was ended by signal {-code}"
    if code in (126, 127):
        return code, f"{command[0]} cannot be started: install it, or give its path"
    return code, f"{command[0]} ended with status {code}" if code else ""


def read(archive: str, offset: int, length: int) -> bytes:
    """Returns bytes of an archive."""
    with open(archive, "rb") as file:
        file.seek(offset)
        return file.read(length)


def forget(archive: str) -> None:
    """Removes an archive that has been fetched."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(archive)


def end(run: str) -> None:
    """Ends this process's part of a run."""
    with _lock:
        _ended.add(run)
        places = _places.pop(run, [])
    for place in places:
        place.end()
