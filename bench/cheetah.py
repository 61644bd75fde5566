"""Cheetah's own processes, started as a user would: everything the harness knows of its command line is here."""

import dataclasses
import json
import os
import subprocess
import time
import urllib.error
import urllib.request

from bench.endpoint import Endpoint
from bench.store import OUT_DIR
from cheetah.bench.failure import BenchError
from cheetah.bench.process import Process, run
from cheetah.bench.units import MIB, iec

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILDS = ("target/static/cheetah", "target/x86_64-unknown-linux-musl/release/cheetah", "target/release/cheetah")

# What a node lends beyond the content it is to hold: its digests, and rounding.
MARGIN_BYTES = 64 * MIB


def binary():
    """The program under measurement: $CHEETAH, or the newest release build."""
    if os.environ.get("CHEETAH"):
        return os.environ["CHEETAH"]
    built = [path for path in (os.path.join(ROOT, build) for build in BUILDS) if os.path.exists(path)]
    if not built:
        raise BenchError("cheetah is not built: run `make static` or `cargo build --release`, or name it in $CHEETAH")
    return max(built, key=os.path.getmtime)


def commit():
    """The commit the tree is at, with a + where files differ from it."""
    described = subprocess.run(
        ["git", "-C", ROOT, "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"],
        capture_output=True, text=True, check=False,
    )
    return described.stdout.strip() or "unknown"


def call(argv, enter=list):
    """Runs a verb to its end and returns what it answered."""
    printed = run(enter([binary(), "--json", *argv]))
    return last_json(printed)


def _json_lines(printed):
    for line in printed.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value


def last_json(printed):
    """The last JSON object that a verb printed: its answer."""
    values = list(_json_lines(printed))
    return values[-1] if values else {}


def serve(scratch, name, argv, enter=list):
    """Starts a verb that runs until it is stopped; returns the process and what it said when it was ready."""
    process = scratch.start(name, enter([binary(), "--json", *argv]))

    def ready():
        return next((line for line in _json_lines(process.printed()) if line.get("event") == "ready"), None)

    process.wait_until(ready, "word that it is ready")
    return process, ready()


@dataclasses.dataclass
class Node:
    """A node that runs."""

    process: Process
    nbd: str
    http: str
    lent_bytes: int

    def export(self, name, size_bytes):
        """Makes an export with its memory reserved, and waits until that memory has been faulted in."""
        body = json.dumps({"name": name, "size_bytes": size_bytes, "reserve": True}).encode()
        request = urllib.request.Request(f"http://{self.http}/v1/exports", body, {"content-type": "application/json"})
        _answer(request)
        self.wait_for_memory()
        return Endpoint("cheetah node", f"nbd://{self.nbd}/{name}", [self.process])

    def wait_for_memory(self):
        """Waits until no more memory is being faulted in: neither that nor its absence is what we measure."""
        ready_bytes = -1
        while True:
            memory = _answer(urllib.request.Request(f"http://{self.http}/v1/status"))["memory"]
            if memory["ready_bytes"] in (ready_bytes, memory["lent_bytes"]):
                return
            ready_bytes = memory["ready_bytes"]
            time.sleep(0.5)


def _answer(request):
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        said = error.read().decode(errors="replace")[:400]
        raise BenchError(f"{request.full_url}: {error.code}: {said}") from None


def node(scratch, content_bytes, address="127.0.0.1", enter=list):
    """Starts a node with memory for that much content."""
    lent_bytes = (content_bytes + content_bytes // 64 + MARGIN_BYTES) // MIB * MIB
    argv = ["node", "--memory", iec(lent_bytes), "--name", scratch.unique("node")]
    if address == "127.0.0.1":
        argv += ["--listen", f"{address}:0"]
    else:
        argv += ["--listen", f"{address}:10809", "--insecure", "--no-announce"]
    process, ready = serve(scratch, "cheetah node", argv, enter)
    return Node(process, ready["nbd"], ready["http"], ready["lent_bytes"])


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


def mount(scratch, drive, writable=False, enter=list):
    """Mounts a drive or an image; returns the process and the path of the file that is the whole drive."""
    directory = scratch.make_dir("mount")
    argv = ["mount", drive, directory, *(["--writable"] if writable else [])]
    process, ready = serve(scratch, "cheetah mount", argv, enter)
    return process, os.path.join(directory, os.path.basename(ready["file"]))
