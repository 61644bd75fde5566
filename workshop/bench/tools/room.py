"""A room for measuring: an authority, and credentials of its members as files."""

import dataclasses
import json
import os
import ssl
import urllib.request
from collections.abc import Sequence
from typing import Any

from bench.scratch import Scratch
from bench.tools import cheetah
from cheetah.bench.process import run
from cheetah.bench.units import MIB, iec
from cheetah.bench.verbs import Enter

MARGIN_BYTES = 64 * MIB


@dataclasses.dataclass
class Room:
    """A room with its own configuration directory."""

    directory: str

    @classmethod
    def new(cls, scratch: Scratch) -> "Room":
        """Creates a room."""
        room = cls(scratch.make_dir("room"))
        run(room.within([cheetah.binary(), "room", "init", "bench"]))
        return room

    def within(self, argv: Sequence[str]) -> list[str]:
        """Returns `argv` to run on the examiner's machine."""
        return ["env", "-u", "CHEETAH_ROOM", f"XDG_CONFIG_HOME={self.directory}", *argv]

    def credential(self, role: str, name: str) -> str:
        """Returns the path of a new member's credential."""
        path = os.path.join(self.directory, f"{name}.pem")
        run(self.within([cheetah.binary(), "room", "credential", "--role", role, "--name", name, "--out", path]))
        return path

    def folder(self, role: str, name: str) -> str:
        """Returns a folder with the PEM files of a new member, as the NBD tools read them."""
        path = os.path.join(self.directory, name)
        run(self.within([cheetah.binary(), "room", "export", path, "--role", role, "--name", name]))
        return path


def acting(credential: str | None, enter: Enter = list) -> Enter:
    """Returns the command line that runs `argv` as a member; without a credential, in clear."""

    def command(argv: Sequence[str]) -> Sequence[str]:
        room = [f"CHEETAH_ROOM={credential}"] if credential else []
        return enter(["env", *([] if room else ["-u", "CHEETAH_ROOM"]), *room, *argv])

    return command


def node(
    scratch: Scratch,
    content_bytes: int,
    credential: str | None,
    address: str = "127.0.0.1",
    enter: Enter = list,
    port: int = 0,
    options: Sequence[str] = (),
) -> Any:
    """Starts a node, in clear or as a member, with further options; returns its ready message."""
    listen = f"{address}:{port}"
    argv = ["node", "--memory", iec(content_bytes + MARGIN_BYTES), "--name", scratch.unique("node"), "--listen", listen]
    argv += ["--no-announce"] if address != "127.0.0.1" else []
    argv += ["--room", credential] if credential else ["--insecure"]
    argv += options
    return cheetah.serve(scratch, "cheetah node", argv, enter)[1]


def make_export(http: str, name: str, size_bytes: int, examiner: str | None) -> None:
    """Creates an export with reserved memory at a node's control API, and waits until its memory is faulted in."""
    context = None
    if examiner:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(examiner)
        context.load_cert_chain(examiner)
        context.check_hostname = False
    base = f"{'https' if examiner else 'http'}://{http}/v1"

    def ask(path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{base}/{path}", data, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=60, context=context) as response:
            return json.load(response)

    ask("exports", {"name": name, "size_bytes": size_bytes, "reserve": True})
    ready_bytes = -1
    while ready_bytes != (now := ask("status")["memory"]["ready_bytes"]):
        ready_bytes = now
        run(["sleep", "0.5"])
