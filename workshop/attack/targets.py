"""The servers that are attacked, each with a check that it still serves the right bytes."""

import contextlib
import json
import os
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from attack.stage import PATIENCE_S, ROOT, Broken, Skipped, Stage, until
from attack.wire import Client


@dataclass
class Target:
    """An NBD server under attack: where it listens, what it serves, and whether it is alive."""

    address: str
    export: str
    content: bytes
    alive: Callable[[], None]

    def check(self) -> None:
        """The server must be alive and return correct bytes; an attacker's connections may take a while to end."""
        self.alive()
        until(self._reads, f"{self.address} serves again")
        self.alive()

    def _reads(self) -> bool:
        try:
            with Client(self.address) as client:
                client.go(self.export)
                middle = len(self.content) // 2
                for offset in (0, middle, len(self.content) - 4096):
                    if client.read(offset, 4096) != self.content[offset : offset + 4096]:
                        raise Broken(f"{self.address} serves wrong bytes at {offset}")
        except (OSError, EOFError):
            return False
        return True


@contextlib.contextmanager
def node(stage: Stage, stderr: str) -> Iterator[Target]:
    """A node that holds a drive; the drive must verify in the end."""
    with stage.node(stderr) as server:
        path = stage.drive([server])
        yield Target(server.ready["nbd"], export_name(server.ready["http"]), stage.content, server.check)
        stage.must("verify", path)
        stage.must("destroy", path)


@contextlib.contextmanager
def export(stage: Stage, stderr: str) -> Iterator[Target]:
    """`cheetah export` of an image."""
    with stage.server(stderr, "export", stage.image, "--listen", "127.0.0.1:0") as server:
        yield Target(address_of(server.ready["uri"]), "", stage.content, server.check)


@contextlib.contextmanager
def serve(stage: Stage, stderr: str) -> Iterator[Target]:
    """`cheetah serve`, the agent."""
    with stage.server(stderr, "serve", stage.image, "--listen", "127.0.0.1:0") as server:
        yield Target(address_of(server.ready["uri"]), "", stage.content, server.check)


@contextlib.contextmanager
def drive(stage: Stage, stderr: str) -> Iterator[Target]:
    """An export of a drive over three nodes: the client side is under attack with it."""
    with contextlib.ExitStack() as stack:
        nodes = [stack.enter_context(stage.node(stderr, "64MiB")) for _ in range(3)]
        path = stage.drive(nodes)
        with stage.server(stderr, "export", path, "--listen", "127.0.0.1:0") as server:
            yield Target(address_of(server.ready["uri"]), "", stage.content, server.check)
        stage.must("destroy", path)


_SHARE = """
import sys, cheetah
with cheetah.share(sys.argv[1]) as share:
    print(share.uri, flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def share(stage: Stage, stderr: str) -> Iterator[Target]:
    """The share of `cheetah triage`, in a Python process. Needs the package in target/venv."""
    python = os.environ.get("CHEETAH_PYTHON") or ROOT / "target/venv/bin/python"
    try:
        subprocess.run([python, "-c", "import cheetah"], capture_output=True, cwd="/", check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Skipped("no Python with the package cheetah (scripts/python-env, CHEETAH_PYTHON)") from error
    with stage.stderr(stderr) as descriptor:
        process = subprocess.Popen(
            [python, "-c", _SHARE, stage.image], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=descriptor,
            text=True, cwd=stage.folder,
        )  # fmt: skip
    assert process.stdin and process.stdout

    def alive() -> None:
        if (code := process.poll()) is not None:
            raise Broken(f"the share ended with {code}")

    try:
        uri = process.stdout.readline().strip()
        socket = uri.partition("socket=")[2]
        if not socket:
            raise Broken(f"the share does not start: {uri}")
        yield Target(socket, "", stage.content, alive)
        alive()
        process.stdin.close()
        if code := process.wait(PATIENCE_S):
            raise Broken(f"the share stopped with {code}")
    finally:
        process.kill()
        process.wait()


ALL = {"node": node, "export": export, "serve": serve, "drive": drive, "share": share}


def address_of(uri: str) -> str:
    """Returns the "host:port" of an nbd:// URI."""
    return uri.removeprefix("nbd://").partition("/")[0]


def export_name(control: str) -> str:
    """Returns the name of the only export of a node."""
    with urllib.request.urlopen(f"http://{control}/v1/status", timeout=PATIENCE_S) as answer:
        return str(json.load(answer)["exports"][0]["name"])
