"""Lies of NBD servers: about the size, in their replies, and about the parts that are zeros."""

import itertools
import struct
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from attack.liars import acquired, each, listening
from attack.lying_nbd import (
    ACK,
    CHUNK_MAGIC,
    DATA,
    DONE,
    EIO,
    ERROR,
    HOLE,
    HOSTILE_BYTES,
    INFORMATION,
    NOTHING,
    SIZE,
    STATUS,
    Lie,
    Request,
    Session,
    chunk,
    data,
    serve,
)
from attack.stage import Broken, Stage
from attack.wire import BLOCK_STATUS, GO, META_CONTEXT, STRUCTURED_REPLY, Client

SMALL = 2048
"""The size where every reply breaks the protocol: the client tries each sector by itself before it gives up."""
MANY = 1 << 18
HOLE_THAT_IS_ZEROS = 3
"""Flags of an extent."""


def _endless(session: Session, option: int) -> None:
    while True:
        session.reply(option, INFORMATION, struct.pack(">H", 1) + b"y" * 100)


def _hostile_infos(session: Session, option: int) -> None:
    for kind in (1, 2):
        session.reply(option, INFORMATION, struct.pack(">H", kind) + HOSTILE_BYTES)


def _blocks(*sizes: int) -> Callable[[Session, int], None]:
    return lambda session, option: session.reply(option, INFORMATION, struct.pack(">HIII", 3, *sizes))


def _overlapping(session: Session, request: Request) -> None:
    half = request.length // 2
    session.chunk(request, DATA, data(session, request, 0, half + 512), 0)
    session.chunk(request, DATA, data(session, request, half))


def _zeros_first(session: Session, request: Request) -> None:
    session.chunk(request, HOLE, struct.pack(">QI", request.offset, request.length), 0)
    session.truth(request)


def _twice(session: Session, request: Request) -> None:
    session.chunk(request, DATA, data(session, request), 0)
    session.chunk(request, HOLE, struct.pack(">QI", request.offset, request.length))


def _short(session: Session, request: Request) -> None:
    session.chunk(request, DATA, data(session, request, 0, request.length - 1))


def _long(session: Session, request: Request) -> None:
    session.chunk(request, DATA, data(session, request) + b"more")


def _elsewhere(session: Session, request: Request) -> None:
    session.chunk(request, DATA, struct.pack(">Q", request.offset + 512) + data(session, request)[8:])


def _claims_length(session: Session, request: Request) -> None:
    session.connection.sendall(struct.pack(">IHHQI", CHUNK_MAGIC, DONE, DATA, request.cookie, 0xFFFFFFFF))


def _nothing(session: Session, request: Request) -> None:
    session.chunk(request, NOTHING)


def _empty_chunks(session: Session, request: Request) -> None:
    session.connection.sendall(chunk(request, DATA, struct.pack(">Q", request.offset), 0) * MANY)
    session.truth(request)


def _other_cookie(session: Session, request: Request) -> None:
    session.truth(Request(request.kind, request.cookie ^ 0x5A5A5A5A, request.offset, request.length, request.count))


def _no_kind(session: Session, request: Request) -> None:
    session.chunk(request, 0x7777, data(session, request))


def _drops(session: Session, request: Request) -> None:
    if request.count % 3 == 0:
        raise EOFError
    session.truth(request)


def _drops_in_mid_reply(session: Session, request: Request) -> None:
    if request.count % 3 == 0:
        session.connection.sendall(chunk(request, DATA, data(session, request))[: request.length // 2])
        raise EOFError
    session.truth(request)


def _fails(session: Session, request: Request) -> None:
    if request.offset + request.length > len(session.content) // 2:
        message = HOSTILE_BYTES
        session.chunk(request, ERROR, struct.pack(">IH", EIO, len(message)) + message)
    else:
        session.truth(request)


def _fails_beyond_its_message(session: Session, request: Request) -> None:
    session.chunk(request, ERROR, struct.pack(">IH", EIO, 0xFFFF) + b"short")


LIES: dict[str, Lie] = {
    "the truth": Lie(),
    "size 0": Lie(lambda _: -SIZE, is_refused=True),
    "size 2^63 - 1": Lie(lambda _: (1 << 63) - 1 - SIZE, is_refused=True),
    "size 2^63": Lie(lambda _: (1 << 63) - SIZE, is_refused=True),
    "size 2^64 - 1": Lie(lambda _: (1 << 64) - 1 - SIZE, is_refused=True),
    "a size that grows": Lie(lambda number: 4096 * (number - 1), reads=_drops),
    "a size that shrinks": Lie(lambda number: -4096 * (number - 1), reads=_drops),
    "a refusal that controls the terminal": Lie(refusal=HOSTILE_BYTES, is_refused=True),
    "names that control the terminal": Lie(informed=_hostile_infos),
    "endless information": Lie(informed=_endless, is_refused=True),
    "block sizes of 0": Lie(informed=_blocks(0, 0, 0)),
    "absurd block sizes": Lie(informed=_blocks(0x80000000, 0xFFFFFFFF, 0xFFFFFFFF)),
    "block sizes in reverse": Lie(informed=_blocks(4096, 512, 1)),
    "block sizes that are no powers of two": Lie(informed=_blocks(3, 5, 7)),
    "overlapping chunks": Lie(reads=_overlapping, length=SMALL, is_refused=True),
    "zeros, then data": Lie(reads=_zeros_first, length=SMALL, is_refused=True),
    "data, then zeros": Lie(reads=_twice, length=SMALL, is_refused=True),
    "short replies": Lie(reads=_short, length=SMALL, is_refused=True),
    "long replies": Lie(reads=_long, length=SMALL, is_refused=True),
    "data of another range": Lie(reads=_elsewhere, length=SMALL, is_refused=True),
    "a chunk that claims 4 GiB": Lie(reads=_claims_length, length=SMALL, is_refused=True),
    "replies without data": Lie(reads=_nothing, length=SMALL, is_refused=True),
    "many empty chunks": Lie(reads=_empty_chunks, length=SMALL),
    "replies to nothing": Lie(reads=_other_cookie, length=SMALL, is_refused=True),
    "chunks of no kind": Lie(reads=_no_kind, length=SMALL, is_refused=True),
    "every third read dropped": Lie(reads=_drops),
    "every third reply cut short": Lie(reads=_drops_in_mid_reply),
    "a failing tail": Lie(reads=_fails, is_refused=True),
    "an error beyond its message": Lie(reads=_fails_beyond_its_message, length=SMALL, is_refused=True),
}


EXTENTS: dict[str, Lie] = {
    "extents of length 0": Lie(extents=lambda _: struct.pack(">II", 0, 0)),
    "no extents": Lie(extents=lambda _: b""),
    "an extent beyond the end": Lie(extents=lambda _: struct.pack(">II", 0xFFFFFFFF, 0)),
    "a hole beyond the end": Lie(extents=lambda _: struct.pack(">II", 0xFFFFFFFF, HOLE_THAT_IS_ZEROS)),
    "many extents": Lie(extents=lambda _: struct.pack(">II", 1, 0) * MANY),
    "half an extent": Lie(extents=lambda length: struct.pack(">II", length, 0)[:-1]),
    "holes that hold data": Lie(extents=lambda length: struct.pack(">II", length, HOLE_THAT_IS_ZEROS)),
}


def lies(stage: Stage) -> None:
    """Acquires from each server, in words and in JSON: all bytes are right, or the acquisition fails in order."""
    whole = stage.random.randbytes(SIZE)

    def case(name: str, words: tuple[str, ...]) -> None:
        lie = replace(LIES[name], seen=itertools.count(1))
        content = whole[: lie.length]
        with listening(partial(serve, lie, content)) as port:
            code, out, complaint = acquired(stage, f"nbd://127.0.0.1:{port}/a", content, *words)
        if code == 0 and lie.is_refused or code != 0 and name == "the truth":
            raise Broken(f"it ended with {code}: {out}{complaint}"[:400])

    each({f"{name}{words}": partial(case, name, words) for name in LIES for words in ((), ("--json",))})


def _ask_for_extents(path: str) -> None:
    """Asks an export for the allocation; it answers with extents of some length, or with an error."""
    with Client(path) as client:
        client.greet()
        context = b"base:allocation"
        query = struct.pack(">III", 0, 1, len(context)) + context
        for option, words in ((STRUCTURED_REPLY, b""), (META_CONTEXT, query), (GO, bytes(6))):
            client.option(option, words)
            kind = 0
            while kind != ACK:
                _, _, kind, length = struct.unpack(">QIII", client.take(20))
                said = client.take(length)
                if kind >= 1 << 31:
                    raise Broken(f"the export refuses option {option}: {said!r}")
        client.request(BLOCK_STATUS, 0, SIZE)
        magic, _, kind, _, length = struct.unpack(">IHHQI", client.take(20))
        lengths = (
            [length for length, _ in struct.iter_unpack(">II", client.take(length)[4:])] if kind == STATUS else [1]
        )
        if magic != CHUNK_MAGIC or kind not in (STATUS, ERROR) or not lengths or min(lengths) == 0:
            raise Broken(f"the export answers a request for extents with kind {kind:#x}, lengths {lengths[:4]}")


def extents(stage: Stage) -> None:
    """Exports each server's content: what it says of the allocation changes no byte, and ends nothing."""
    content = stage.random.randbytes(SIZE)

    def case(lie: Lie) -> None:
        socket_path = stage.path(".sock")
        with (
            listening(partial(serve, lie, content)) as port,
            stage.server(
                "file", "export", f"nbd://127.0.0.1:{port}/a", "--unix", socket_path, "--timeout", "2"
            ) as server,
            Client(str(socket_path)) as client,
        ):
            client.go("")
            for _ in range(3):
                _ask_for_extents(str(socket_path))
                if client.read(0, SIZE) != content:
                    raise Broken("the export has other bytes")
            server.check()

    each({name: partial(case, lie) for name, lie in EXTENTS.items()})
