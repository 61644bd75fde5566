"""Attacks of a room's own members: a name that is not theirs, and a connection that was open when they were revoked."""

import contextlib
import json
import socket
import ssl
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from attack.stage import Broken, Server, Stage, until
from attack.wire import GO, INFO, LIST, Client

STARTTLS, ACK, REFUSED = 5, 1, 1 << 31
NAMES = {
    "evidence-server.corp.example": "evidence-server.corp.example",
    "*.corp.example": "any.corp.example",
    "192.0.2.7": "192.0.2.7",
}
"""Names that a machine joins under, each with the name that a client looks for."""
CHOSEN = "chosen.corp.example"


@dataclass
class Room:
    """A room, whose machine lets others in."""

    stage: Stage
    examiner: Stage

    def machine(self) -> Stage:
        """Returns another machine, which is in no room."""
        folder = self.stage.path("")
        return self.stage.having(XDG_CONFIG_HOME=folder, XDG_STATE_HOME=folder / "state")

    def invitation(self, role: str) -> str:
        """Makes an invitation."""
        said = self.examiner.must("--json", "room", "invite", "--no-serve", "--role", role)
        return str(json.loads(said.splitlines()[0])["invitation"])

    def credential(self, role: str, name: str) -> Path:
        """Makes a credential in advance."""
        path = self.stage.path(".pem")
        self.examiner.must("room", "credential", "--role", role, "--name", name, "--out", path)
        return path

    def exported(self, role: str, name: str) -> Path:
        """Exports a credential for other programs."""
        folder = self.stage.path("")
        self.examiner.must("room", "export", folder, "--role", role, "--name", name)
        return folder


@contextlib.contextmanager
def room(stage: Stage) -> Iterator[Room]:
    """Makes a room."""
    made = Room(stage, stage)
    made.examiner = made.machine()
    made.examiner.must("room", "init", "lab")
    with made.examiner.server("file", "room", "serve", "--listen", "127.0.0.1:0"):
        yield made


def _secured(address: str, folder: Path, name: str | None) -> ssl.SSLSocket:
    """Connects to an NBD server with TLS, as another program would: it verifies the server's name, unless that is None."""
    client = Client(address)
    client.greet()
    client.option(STARTTLS)
    if struct.unpack(">QIII", client.take(20))[2] != ACK:
        raise Broken(f"{address} offers no TLS")
    context = ssl.create_default_context(cafile=folder / "ca-cert.pem")
    context.check_hostname = name is not None
    context.load_cert_chain(folder / "client-cert.pem", folder / "client-key.pem")
    return context.wrap_socket(client.socket, server_hostname=name)


def _is_taken_for(address: str, folder: Path, name: str) -> bool:
    try:
        with _secured(address, folder, name):
            return True
    except ssl.SSLCertVerificationError:
        return False


def names(stage: Stage) -> None:
    """Machines join under names of other machines. A client that verifies the name, and knows no roles, takes none of them for
    those; it does take a machine for the one whose name the examiner chose."""
    with room(stage) as made:
        folder = made.exported("examiner", "desk")
        for role in ("agent", "node"):
            for joined, sought in NAMES.items():
                machine = made.machine()
                machine.must("room", "join", made.invitation(role), "--name", joined)
                with _serving(machine, role) as address:
                    _must_be(address, folder, "localhost")
                    if _is_taken_for(address, folder, sought):
                        raise Broken(f"a machine that joined as {role} is taken for {sought}")
        with _serving(made.machine(), "agent", "--room", made.credential("agent", CHOSEN)) as address:
            _must_be(address, folder, CHOSEN)


def _must_be(address: str, folder: Path, name: str) -> None:
    if not _is_taken_for(address, folder, name):
        raise Broken(f"a machine is not taken for {name}, which it is")


@contextlib.contextmanager
def _serving(machine: Stage, role: str, *more: str | Path) -> Iterator[str]:
    """Starts the server of a role; yields its address."""
    verb: tuple[str | Path, ...] = ("serve", machine.image) if role == "agent" else ("node", "--memory", "16MiB")
    with machine.server("file", *verb, "--listen", "127.0.0.1:0", *more) as server:
        yield server.ready["nbd"] if role == "node" else server.ready["uri"].split("//")[1].split("/")[0]


@contextlib.contextmanager
def node_of(made: Room, name: str) -> Iterator[Server]:
    """Starts a node on a machine of its own, which joins."""
    words = ("node", "--memory", "32MiB", "--listen", "127.0.0.1:0", "--name", name)
    with made.machine().server("file", *words, "--room", made.invitation("node")) as server:
        yield server


def _asked(connection: ssl.SSLSocket, option: int, data: bytes) -> list[bytes]:
    """Returns what a server tells in reply to an option: nothing if it refuses, or hangs up."""
    told: list[bytes] = []
    try:
        connection.sendall(struct.pack(">QII", 0x49484156454F5054, option, len(data)) + data)
        while True:
            _, _, kind, length = struct.unpack(">QIII", _take(connection, 20))
            words = _take(connection, length)
            if kind == ACK or kind >= REFUSED:
                return told
            told.append(words)
    except (OSError, EOFError):
        return told


def _take(connection: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        part = connection.recv(length - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def negotiating(stage: Stage) -> None:
    """A member has connections on which it has opened nothing yet, and is revoked. The server tells it no more of its exports."""
    with room(stage) as made, node_of(made, "a") as node, contextlib.ExitStack() as stack:
        drive, address = stage.path(".drive"), node.ready["nbd"]
        words = ("--layout", "linear", "--no-seal", "--size", "1MiB")
        made.examiner.must("create", drive, "--nodes", address, *words)
        folder = made.exported("analyst", "ann")

        def connected() -> ssl.SSLSocket:
            return stack.enter_context(_secured(address, folder, None))

        listed = _asked(connected(), LIST, b"")
        if not listed:
            raise Broken("the node tells an analyst of no export")
        name = listed[0][4:]
        query = struct.pack(">I", len(name)) + name + struct.pack(">H", 0)
        options = {LIST: b"", INFO: query, GO: query}
        for option in (INFO, GO):
            if not _asked(connected(), option, query):
                raise Broken(f"the node refuses option {option} to an analyst")
        waiting = {option: connected() for option in options}
        made.examiner.must("room", "revoke", "ann")
        until(lambda: not _still_lists(address, folder), "the node refuses the revoked member")
        for option, data in options.items():
            if told := _asked(waiting[option], option, data):
                raise Broken(f"a revoked member is answered option {option}: {told}")
        node.check()


def _still_lists(address: str, folder: Path) -> bool:
    try:
        with _secured(address, folder, None) as connection:
            return bool(_asked(connection, LIST, b""))
    except (OSError, EOFError):
        return False
