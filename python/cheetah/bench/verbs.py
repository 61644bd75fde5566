"""Cheetah's own processes, started as a user would. It holds what benchmarks know of the command line of drives."""

import dataclasses
import json
import os
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from cheetah.bench.failure import BenchError
from cheetah.bench.process import Process, run
from cheetah.bench.units import MIB, iec

PROGRAM = ("CHEETAH", "CHEETAH_BINARY")
"""The variables that name the program: the user's, and that of the program itself when it starts Python."""

# The memory a node lends beyond its content: digests, and rounding.
MARGIN_BYTES = 64 * MIB
# The longest wait for memory to be faulted in.
MEMORY_TIMEOUT_S = 600

# Wraps a command line, for instance to run it in a network namespace.
Enter = Callable[[Sequence[str]], Sequence[str]]


class ResourceOwner(Protocol):
    """The owner of started processes, which ends them, as `WorkDirectory` is."""

    def start(self, name: str, argv: Sequence[str]) -> Process:
        """Starts a process that is ended with the owner."""

    def unique(self, stem: str) -> str:
        """Returns a name that is unique in this run."""

    def path(self, stem: str) -> str:
        """Returns a unique path for a small file."""

    def make_dir(self, stem: str) -> str:
        """Creates a new directory."""

    def at_exit(self, action: Callable[..., Any], *arguments: Any) -> None:
        """Calls an action at the end, in reverse order."""


def binary() -> str:
    """Returns the program: $CHEETAH, the one that started this process, or the one on the PATH."""
    for variable in PROGRAM:
        if os.environ.get(variable):
            return os.environ[variable]
    found = shutil.which("cheetah")
    if found is None:
        raise BenchError("cheetah was not found on the PATH: install it, or name it in $CHEETAH")
    return found


def call(argv: Sequence[str], enter: Enter = list) -> dict[str, Any]:
    """Runs a verb to its end and returns its answer. Raises BenchError with its own sentence if it failed."""
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
    """Returns the last JSON object that a verb printed: its answer."""
    values = list(_json_lines(printed))
    return values[-1] if values else {}


def serve(
    scratch: ResourceOwner, name: str, argv: Sequence[str], enter: Enter = list
) -> tuple[Process, dict[str, Any]]:
    """Starts a verb that runs until it is stopped; returns the process and its first answer."""
    process = scratch.start(name, enter([binary(), "--json", *argv]))

    def ready() -> dict[str, Any] | None:
        return next((line for line in _json_lines(process.printed()) if line.get("event") == "ready"), None)

    try:
        process.wait_until(ready, "its ready message")
    except BenchError:
        said = last_json(process.printed()).get("error")
        if said is None:
            raise
        raise BenchError(f"{name}: {said}") from None
    return process, ready() or {}


@dataclasses.dataclass
class Node:
    """A running node."""

    process: Process
    nbd: str
    http: str
    lent_bytes: int

    def ask(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Returns the answer of its control API to a GET or, with a body, a POST."""
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
        """Waits until its memory is faulted in, so that page faults are not measured."""
        until = time.monotonic() + MEMORY_TIMEOUT_S
        ready_bytes = -1
        while time.monotonic() < until:
            memory = self.ask("/v1/status")["memory"]
            if memory["ready_bytes"] in (ready_bytes, memory["lent_bytes"]):
                return
            ready_bytes = memory["ready_bytes"]
            time.sleep(0.5)
        raise BenchError(f"the node at {self.nbd} is still faulting in its memory after {MEMORY_TIMEOUT_S} s")


def node(scratch: ResourceOwner, content_bytes: int, address: str = "127.0.0.1", enter: Enter = list) -> Node:
    """Starts a node with memory for an amount of content."""
    argv = ["node", "--memory", iec(lent(content_bytes)), "--name", scratch.unique("node")]
    if address == "127.0.0.1":
        argv += ["--listen", f"{address}:0"]
    else:
        argv += ["--listen", f"{address}:10809", "--insecure", "--no-announce"]
    process, ready = serve(scratch, "cheetah node", argv, enter)
    return Node(process, ready["nbd"], ready["http"], ready["lent_bytes"])


def lent(content_bytes: int) -> int:
    """Returns the memory that a node must lend for an amount of content, in whole MiB."""
    return (content_bytes + content_bytes // 64 + MARGIN_BYTES) // MIB * MIB


def mount(scratch: ResourceOwner, drive: str, writable: bool = False, enter: Enter = list) -> tuple[Process, str]:
    """Mounts a drive or an image; returns the process and the path of the file with its content."""
    directory = scratch.make_dir("mount")
    argv = ["mount", drive, directory, *(["--writable"] if writable else [])]
    process, ready = serve(scratch, "cheetah mount", argv, enter)
    return process, os.path.join(directory, os.path.basename(ready["file"]))
