"""Cheetah's own processes, started as a user would: what the harness knows of the command line of drives is here."""

import dataclasses
import json
import os
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from cheetah.bench.failure import BenchError
from cheetah.bench.process import Process, run
from cheetah.bench.units import MIB, iec

BUILDS = ("target/static/cheetah", "target/x86_64-unknown-linux-musl/release/cheetah", "target/release/cheetah")
CHECKOUT = Path(__file__).resolve().parents[3]

# What a node lends beyond the content it is to hold: its digests, and rounding.
MARGIN_BYTES = 64 * MIB
# Memory that is still being faulted in after that long is no longer waited for.
MEMORY_TIMEOUT_S = 600

# A command line as it is to be run, for instance in a network namespace.
Enter = Callable[[Sequence[str]], Sequence[str]]


class Holder(Protocol):
    """Whoever ends what is started: `scratch.Scratch`, `storage.work.Work`."""

    def start(self, name: str, argv: Sequence[str]) -> Process:
        """Starts a process that is ended when this is left."""

    def unique(self, stem: str) -> str:
        """A name nobody else in this run has."""

    def path(self, stem: str) -> str:
        """A path of its own for a small file."""

    def make_dir(self, stem: str) -> str:
        """A new, empty directory."""

    def at_exit(self, action: Callable[..., Any], *arguments: Any) -> None:
        """Does this at the end, last come first."""


def binary() -> str:
    """The program: $CHEETAH, the one we were started by, a checkout's newest release build, or the one on the PATH."""
    for variable in ("CHEETAH", "CHEETAH_BINARY"):
        if os.environ.get(variable):
            return os.environ[variable]
    built = [path for path in (CHECKOUT / build for build in BUILDS) if path.exists()]
    if built:
        return str(max(built, key=os.path.getmtime))
    found = shutil.which("cheetah")
    if found is None:
        raise BenchError("cheetah is not there: build it with `make static`, or name it in $CHEETAH")
    return found


def call(argv: Sequence[str], enter: Enter = list) -> dict[str, Any]:
    """Runs a verb to its end and returns what it answered. BenchError with its own sentence where it failed."""
    answer = last_json(run(enter([binary(), "--json", *argv]), check=False))
    if not answer or "error" in answer:
        raise BenchError(f"cheetah {argv[0]}: {answer.get('error', 'it ended without an answer')}")
    return answer


def _json_lines(printed: str) -> Iterator[dict[str, Any]]:
    for line in printed.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value


def last_json(printed: str) -> dict[str, Any]:
    """The last JSON object that a verb printed: its answer."""
    values = list(_json_lines(printed))
    return values[-1] if values else {}


def serve(scratch: Holder, name: str, argv: Sequence[str], enter: Enter = list) -> tuple[Process, dict[str, Any]]:
    """Starts a verb that runs until it is stopped; returns the process and what it said when it was ready."""
    process = scratch.start(name, enter([binary(), "--json", *argv]))

    def ready() -> dict[str, Any] | None:
        return next((line for line in _json_lines(process.printed()) if line.get("event") == "ready"), None)

    try:
        process.wait_until(ready, "word that it is ready")
    except BenchError:
        said = last_json(process.printed()).get("error")
        if said is None:
            raise
        raise BenchError(f"{name}: {said}") from None
    return process, ready() or {}


@dataclasses.dataclass
class Node:
    """A node that runs."""

    process: Process
    nbd: str
    http: str
    lent_bytes: int

    def ask(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """What its control answers, to a GET or, with a body, a POST."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self.http}{path}", data, {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                answer: dict[str, Any] = json.load(response)
        except urllib.error.HTTPError as error:
            said = error.read().decode(errors="replace")[:400]
            raise BenchError(f"{request.full_url}: {error.code}: {said}") from None
        except OSError as error:
            raise BenchError(f"{request.full_url}: {error}") from None
        return answer

    def wait_for_memory(self) -> None:
        """Waits until no more memory is being faulted in: neither that nor its absence is what we measure."""
        until = time.monotonic() + MEMORY_TIMEOUT_S
        ready_bytes = -1
        while time.monotonic() < until:
            memory = self.ask("/v1/status")["memory"]
            if memory["ready_bytes"] in (ready_bytes, memory["lent_bytes"]):
                return
            ready_bytes = memory["ready_bytes"]
            time.sleep(0.5)
        raise BenchError(f"the node at {self.nbd} is still faulting in its memory after {MEMORY_TIMEOUT_S} s")


def node(scratch: Holder, content_bytes: int, address: str = "127.0.0.1", enter: Enter = list) -> Node:
    """Starts a node with memory for that much content."""
    argv = ["node", "--memory", iec(lent(content_bytes)), "--name", scratch.unique("node")]
    if address == "127.0.0.1":
        argv += ["--listen", f"{address}:0"]
    else:
        argv += ["--listen", f"{address}:10809", "--insecure", "--no-announce"]
    process, ready = serve(scratch, "cheetah node", argv, enter)
    return Node(process, ready["nbd"], ready["http"], ready["lent_bytes"])


def lent(content_bytes: int) -> int:
    """What a node has to lend for that much content, in whole MiB."""
    return (content_bytes + content_bytes // 64 + MARGIN_BYTES) // MIB * MIB


def mount(scratch: Holder, drive: str, writable: bool = False, enter: Enter = list) -> tuple[Process, str]:
    """Mounts a drive or an image; returns the process and the path of the file that is the whole drive."""
    directory = scratch.make_dir("mount")
    argv = ["mount", drive, directory, *(["--writable"] if writable else [])]
    process, ready = serve(scratch, "cheetah mount", argv, enter)
    return process, os.path.join(directory, os.path.basename(ready["file"]))
