"""An NBD server that lies."""

import itertools
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from attack.liars import HOSTILE, take
from attack.wire import (
    BLOCK_STATUS,
    DISCONNECT,
    GO,
    INFO,
    LIST,
    META_CONTEXT,
    READ,
    REPLY_MAGIC,
    STRUCTURED_REPLY,
)

SIZE = 4 << 20
HOSTILE_BYTES = HOSTILE.encode()
CHUNK_MAGIC = 0x668E33EF
DONE = 1
NOTHING, DATA, HOLE, STATUS, ERROR = 0, 1, 2, 5, 0x8001
"""Kinds of chunks."""
ABORT, LIST_CONTEXTS, ACK, SERVER, INFORMATION, UNSUPPORTED, UNKNOWN = 2, 9, 1, 2, 3, 0x80000001, 0x80000006
"""Options, and kinds of replies to options."""
EIO, ENOTSUP = 5, 95


@dataclass(frozen=True)
class Request:
    """A request to read, or for the status of a range."""

    kind: int
    cookie: int
    offset: int
    length: int
    count: int
    """How many requests to read there were on all connections, with this one."""


class Session:
    """A connection of a client."""

    def __init__(self, connection: socket.socket, content: bytes):
        self.connection, self.content = connection, content

    def reply(self, option: int, kind: int, data: bytes = b"") -> None:
        """Replies to an option."""
        self.connection.sendall(struct.pack(">QIII", REPLY_MAGIC, option, kind, len(data)) + data)

    def chunk(self, request: Request, kind: int, data: bytes = b"", flags: int = DONE) -> None:
        """Sends a chunk of a structured reply."""
        self.connection.sendall(chunk(request, kind, data, flags))

    def truth(self, request: Request) -> None:
        """Replies to a read."""
        self.chunk(request, DATA, data(self, request))

    def statuses(self, request: Request, extents: bytes) -> None:
        """Replies to a request for the status of a range."""
        self.chunk(request, STATUS, struct.pack(">I", 1) + extents)


def chunk(request: Request, kind: int, payload: bytes, flags: int = DONE) -> bytes:
    """Returns a chunk of a structured reply."""
    return struct.pack(">IHHQI", CHUNK_MAGIC, flags, kind, request.cookie, len(payload)) + payload


def data(session: Session, request: Request, first: int = 0, last: int | None = None) -> bytes:
    """Returns the payload with a part of the requested data."""
    part = session.content[request.offset : request.offset + request.length][first:last]
    return struct.pack(">Q", request.offset + first) + part


@dataclass(frozen=True)
class Lie:
    """How a server departs from the truth."""

    size: Callable[[int], int] = lambda _: 0
    """What it adds to the size that it tells, by the number of the connection."""
    informed: Callable[[Session, int], None] = lambda *_: None
    """What it says beside the size in reply to INFO and GO."""
    reads: Callable[[Session, Request], None] = Session.truth
    extents: Callable[[int], bytes] = lambda length: struct.pack(">II", length, 0)
    """What it says of the allocation of a range."""
    refusal: bytes = b""
    """The words with which it refuses the export."""
    length: int = SIZE
    """The size of the content."""
    is_refused: bool = False
    """Whether no outcome but a refusal is right."""
    seen: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))


def _options(session: Session, lie: Lie, number: int) -> None:
    """Negotiates until the client opens the export."""
    session.connection.sendall(b"NBDMAGICIHAVEOPT" + struct.pack(">H", 3))
    take(session.connection, 4)
    while True:
        _, option, length = struct.unpack(">QII", take(session.connection, 16))
        words = take(session.connection, length)
        if option == STRUCTURED_REPLY:
            session.reply(option, ACK)
        elif option in (LIST_CONTEXTS, META_CONTEXT):
            if b"base:allocation" in words:
                session.reply(option, 4, struct.pack(">I", 1) + b"base:allocation")
            session.reply(option, ACK)
        elif option in (INFO, GO) and lie.refusal:
            session.reply(option, UNKNOWN, lie.refusal)
        elif option in (INFO, GO):
            session.reply(option, INFORMATION, struct.pack(">HQH", 0, len(session.content) + lie.size(number), 3))
            lie.informed(session, option)
            session.reply(option, ACK)
            if option == GO:
                return
        elif option == LIST:
            session.reply(option, SERVER, struct.pack(">I", 1) + b"a" + HOSTILE_BYTES)
            session.reply(option, ACK)
        elif option == ABORT:
            session.reply(option, ACK)
        else:
            session.reply(option, UNSUPPORTED, HOSTILE_BYTES)


def serve(lie: Lie, content: bytes, connection: socket.socket, number: int) -> None:
    """Serves a client, with lies."""
    session = Session(connection, content)
    _options(session, lie, number)
    while True:
        _, _, kind, cookie, offset, length = struct.unpack(">IHHQQI", take(connection, 28))
        if kind == DISCONNECT:
            return
        request = Request(kind, cookie, offset, length, next(lie.seen) if kind == READ else 0)
        if kind == READ:
            lie.reads(session, request)
        elif kind == BLOCK_STATUS:
            session.statuses(request, lie.extents(request.length))
        else:
            session.chunk(request, ERROR, struct.pack(">IH", ENOTSUP, 0))
