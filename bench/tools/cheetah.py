"""Cheetah's own processes, started as a user would: everything the harness knows of its command line is here."""

import os
import subprocess

from bench.report.store import OUT_DIR
from bench.tools.endpoint import Endpoint
from cheetah.bench import verbs
from cheetah.bench.process import run
from cheetah.bench.units import iec
from cheetah.bench.verbs import binary, call, last_json, mount, serve

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

__all__ = ["binary", "call", "last_json", "mount", "serve"]


def commit():
    """The commit the tree is at, with a + where files differ from it."""
    described = subprocess.run(
        ["git", "-C", ROOT, "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"],
        capture_output=True, text=True, check=False,
    )
    return described.stdout.strip() or "unknown"


class Node(verbs.Node):
    """A node that runs."""

    def export(self, name, size_bytes):
        """Makes an export with its memory reserved, and waits until that memory has been faulted in."""
        self.ask("/v1/exports", {"name": name, "size_bytes": size_bytes, "reserve": True})
        self.wait_for_memory()
        return Endpoint("cheetah node", f"nbd://{self.nbd}/{name}", [self.process])


def node(scratch, content_bytes, address="127.0.0.1", enter=list):
    """Starts a node with memory for that much content."""
    return Node(**vars(verbs.node(scratch, content_bytes, address, enter)))


def create(scratch, nodes, size_bytes=None, image=None, enter=list):
    """Makes a striped drive with the default unit, empty or from an image; returns its file's path."""
    path = scratch.path("drive") + ".drive"
    argv = ["create", path, "--nodes", ",".join(node.nbd for node in nodes), "--layout", "stripe"]
    argv += ["--from", image] if image else ["--size", iec(size_bytes)]
    call(argv, enter)
    return path


def export(scratch, drive, writable=False, tcp=True, enter=list, name="cheetah export"):
    """Serves a drive over NBD, on loopback TCP or a Unix socket."""
    if tcp:
        argv = ["export", drive, "--listen", "127.0.0.1:0"]
    else:
        argv = ["export", drive, "--unix", scratch.path("socket")]
    argv += ["--writable"] if writable else []
    process, ready = serve(scratch, name, argv, enter)
    return Endpoint(name, ready["uri"], [process])


def agent(scratch, image, address, enter=list):
    """Serves an image, read-only, as the agent on a suspect's machine does."""
    process, _ = serve(scratch, "cheetah serve", ["serve", image, "--listen", address, "--insecure"], enter)
    return process


def acquire_argv(source, target, hashes, options=()):
    """The command line of an acquisition, signed with a key that is only for measuring."""
    argv = ["env", f"CHEETAH_KEY={os.path.join(OUT_DIR, 'custody.key')}", binary(), "--json", "acquire"]
    return [*argv, source, target, "--hash", hashes, *options]


def acquired(printed):
    """The report of an acquisition, from what it printed."""
    return last_json(printed)["report"]


def acquire(source, target, hashes, options=(), enter=list):
    """Acquires a source into an image; returns its report."""
    return acquired(run(enter(acquire_argv(source, target, hashes, options))))
