"""The servers under attack, each a process of its own, and their content."""

import contextlib
import copy
import itertools
import json
import os
import random
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab.namespace import Namespace

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0
"""Nothing here takes this long, unless it hangs."""
STDERRS = ("full disk", "closed pipe", "file")


class Broken(Exception):
    """A server or verb failed under attack."""


class Skipped(Exception):
    """This machine lacks something that the attack needs."""


@dataclass
class Server:
    """A verb that runs until it is stopped, and has said that it is ready."""

    process: subprocess.Popen[str]
    ready: dict[str, str]
    lines: list[str] = field(default_factory=list)

    def check(self) -> None:
        """The process must be alive."""
        if (code := self.process.poll()) is not None:
            raise Broken(f"the server ended with {code}")

    def stop(self) -> None:
        """Stops it; it must end with 0."""
        self.check()
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired as error:
            raise Broken("the server does not stop") from error
        if code != 0:
            raise Broken(f"the server stopped with {code}")


class Stage:
    """A folder with an image of random bytes, and a way to start servers with a given stderr."""

    def __init__(self, binary: Path, folder: Path, quick: bool):
        self.binary, self.folder, self.quick = binary, folder, quick
        self.command = [str(binary)]
        self.variables: dict[str, str] = {}
        self.current: Path | None = None
        self.random = random.Random(12)
        self.content = self.random.randbytes((8 if quick else 64) << 20)
        self.image = folder / "a.raw"
        self.image.write_bytes(self.content)
        self._names = itertools.count(1)

    def on(self, namespace: Namespace) -> "Stage":
        """Returns the same stage with its commands in a network namespace."""
        there = copy.copy(self)
        there.command = namespace.command(self.command)
        return there

    def having(self, **variables: str | Path) -> "Stage":
        """Returns the same stage with these environment variables in addition."""
        there = copy.copy(self)
        there.variables = {**self.variables, **{name: str(value) for name, value in variables.items()}}
        return there

    def within(self, folder: Path) -> "Stage":
        """Returns the same stage with this as the current folder of commands that end."""
        there = copy.copy(self)
        there.current = folder
        return there

    def times(self, few: int, many: int) -> int:
        """Returns `few` in a quick run."""
        return few if self.quick else many

    def path(self, suffix: str) -> Path:
        """Returns a path that does not exist. Names with a counter would be those of parts of one image."""
        letters = "".join(chr(ord("a") + int(digit)) for digit in str(next(self._names)))
        return self.folder / f"file-{letters}-{suffix}"

    def run(self, *words: str | Path) -> tuple[int, str, str]:
        """Runs a verb to its end; returns exit code, stdout and stderr."""
        try:
            ran = subprocess.run(
                [*self.command, *words],
                capture_output=True,
                env=self.environment(),
                cwd=self.current,
                stdin=subprocess.DEVNULL,
                timeout=PATIENCE_S,
            )
        except subprocess.TimeoutExpired as error:
            raise Broken(f"cheetah {' '.join(map(str, words))} does not end") from error
        return ran.returncode, ran.stdout.decode(errors="replace"), ran.stderr.decode(errors="replace")

    def must(self, *words: str | Path) -> str:
        """Runs a verb that must succeed; returns stdout."""
        code, out, complaint = self.run(*words)
        if code != 0:
            raise Broken(f"cheetah {' '.join(map(str, words))} ended with {code}: {complaint.strip()}")
        return out

    @contextlib.contextmanager
    def server(self, stderr: str, *words: str | Path) -> Iterator[Server]:
        """Starts a verb with a stderr, waits for its first line, and stops it in the end: it must exit with 0."""
        with self.stderr(stderr) as descriptor:
            process = subprocess.Popen(
                [*self.command, "--json", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=descriptor,
                env=self.environment(), text=True,
            )  # fmt: skip
        assert process.stdout
        try:
            line = process.stdout.readline()
            if not line:
                raise Broken(f"cheetah {' '.join(map(str, words))} does not start: {process.wait(PATIENCE_S)}")
            server = Server(process, json.loads(line))
            # Its later output must not fill the pipe.
            threading.Thread(target=server.lines.extend, args=(process.stdout,), daemon=True).start()
            yield server
            if process.poll() != -signal.SIGKILL:
                server.stop()
        finally:
            process.kill()
            process.wait()

    @contextlib.contextmanager
    def node(self, stderr: str, memory: str = "128MiB") -> Iterator[Server]:
        """Starts a node."""
        with self.server(stderr, "node", "--memory", memory, "--listen", "127.0.0.1:0") as server:
            yield server

    def drive(self, nodes: Sequence[Server], image: Path | None = None) -> Path:
        """Creates a drive over nodes that holds an image."""
        path = self.path(".drive")
        names = ",".join(node.ready["nbd"] for node in nodes)
        self.must("create", path, "--nodes", names, "--layout", "stripe", "--from", image or self.image)
        return path

    @contextlib.contextmanager
    def stderr(self, kind: str) -> Iterator[int]:
        """Opens one of STDERRS."""
        if kind == "closed pipe":
            reader, descriptor = os.pipe()
            os.close(reader)
        else:
            path = "/dev/full" if kind == "full disk" else self.path(".stderr")
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def environment(self) -> dict[str, str]:
        """Returns the environment of commands: with a key and a ledger of the stage's own."""
        key, state = self.folder / "custody.key", self.folder / "state"
        return {**os.environ, "CHEETAH_KEY": str(key), "XDG_STATE_HOME": str(state), **self.variables}


def until(condition: Callable[[], bool], what: str) -> None:
    """Waits for a condition."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            raise Broken(f"{what}: not after {PATIENCE_S:.0f} s")
        time.sleep(0.05)


@contextlib.contextmanager
def stage(binary: Path, quick: bool) -> Iterator[Stage]:
    """Sets up a stage, and removes its folder in the end."""
    with tempfile.TemporaryDirectory(prefix="cheetah-attack-") as folder:
        yield Stage(binary, Path(folder), quick)
