"""Cheetah's own processes, started as a user would. It holds the harness's knowledge of Cheetah's command line."""

import os
import subprocess
from collections.abc import Sequence
from typing import Any

from bench.report.store import OUT_DIR
from bench.scratch import Scratch
from bench.tools.endpoint import Endpoint
from cheetah.bench import verbs
from cheetah.bench.process import run
from cheetah.bench.units import iec
from cheetah.bench.verbs import PROGRAM, Enter, binary, call, last_json, mount, serve

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
BUILDS = ("target/static/cheetah", "target/x86_64-unknown-linux-musl/release/cheetah", "target/release/cheetah")

__all__ = ["binary", "call", "last_json", "mount", "serve"]


def newest_build() -> str | None:
    """Returns the newest release build of this tree, if there is one."""
    built = [path for path in (os.path.join(ROOT, build) for build in BUILDS) if os.path.exists(path)]
    return max(built, key=os.path.getmtime, default=None)


def use_newest_build() -> None:
    """Makes every command of the harness run the newest release build of this tree, unless $CHEETAH names a program."""
    built = newest_build()
    if built is not None and not any(os.environ.get(variable) for variable in PROGRAM):
        os.environ["CHEETAH"] = built


def commit() -> Any:
    """Returns the commit of the tree, with a + if files differ from it."""
    described = subprocess.run(
        ["git", "-C", ROOT, "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"],
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip() or "unknown"


class Node(verbs.Node):
    """A running node."""

    def export(self, name: str, size_bytes: int) -> Endpoint:
        """Creates an export with reserved memory, and waits until that memory has been faulted in."""
        self.ask("/v1/exports", {"name": name, "size_bytes": size_bytes, "reserve": True})
        self.wait_for_memory()
        return Endpoint("cheetah node", f"nbd://{self.nbd}/{name}", [self.process])


def node(
    scratch: Scratch,
    content_bytes: int,
    address: str = "127.0.0.1",
    enter: Enter = list,
    options: Sequence[str] = (),
) -> Node:
    """Starts a node with memory for an amount of content, and further options."""
    return Node(**vars(verbs.node(scratch, content_bytes, address, lambda argv: enter([*argv, *options]))))


def create(scratch: Scratch, nodes: Any, size_bytes: int = 0, image: str | None = None, enter: Enter = list) -> str:
    """Creates a striped drive with the default unit, empty or from an image; returns its file's path. It is not sealed:
    workshop/bench/parts/seal.py measures what a seal costs."""
    path = scratch.path("drive") + ".drive"
    argv = ["create", path, "--nodes", ",".join(node.nbd for node in nodes), "--layout", "stripe", "--no-seal"]
    argv += ["--from", image] if image else ["--size", iec(size_bytes)]
    call(argv, enter)
    return path


def export(
    scratch: Scratch,
    drive: str,
    writable: bool = False,
    tcp: bool = True,
    enter: Enter = list,
    name: str = "cheetah export",
) -> Endpoint:
    """Serves a drive over NBD, on loopback TCP or a Unix socket."""
    if tcp:
        argv = ["export", drive, "--listen", "127.0.0.1:0"]
    else:
        argv = ["export", drive, "--unix", scratch.path("socket")]
    argv += ["--writable"] if writable else []
    process, ready = serve(scratch, name, argv, enter)
    return Endpoint(name, ready["uri"], [process])


def agent(scratch: Scratch, image: Any, address: str, enter: Enter = list, options: Sequence[str] = ()) -> Any:
    """Serves an image read-only, as the agent on a suspect's machine does, with further options."""
    argv = ["serve", image, "--listen", address, "--insecure", *options]
    process, _ = serve(scratch, "cheetah serve", argv, enter)
    return process


def acquire_argv(source: str, target: str, hashes: str, options: Sequence[str] = ()) -> Any:
    """Returns the command line of an acquisition, signed with a key for measuring only."""
    argv = ["env", f"CHEETAH_KEY={os.path.join(OUT_DIR, 'custody.key')}", binary(), "--json", "acquire"]
    return [*argv, source, target, "--hash", hashes, *options]


def acquired(printed: str) -> Any:
    """Returns the report in the output of an acquisition."""
    return last_json(printed)["report"]


def acquire(source: str, target: str, hashes: str, options: Sequence[str] = (), enter: Enter = list) -> Any:
    """Acquires a source into an image; returns its report."""
    return acquired(run(enter(acquire_argv(source, target, hashes, options))))
