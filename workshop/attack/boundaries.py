"""Requests and options at and beyond every boundary."""

import contextlib
import struct

from attack.stage import Broken, Stage
from attack.targets import Target
from attack.wire import (
    BLOCK_STATUS,
    CACHE,
    DISCONNECT,
    FLUSH,
    GO,
    INFO,
    LIST,
    META_CONTEXT,
    READ,
    REQUEST_BYTES_MAX,
    STRUCTURED_REPLY,
    TRIM,
    WRITE,
    WRITE_ZEROES,
    Client,
)  # fmt: skip

MAX_U32, MAX_U64 = (1 << 32) - 1, (1 << 64) - 1


def boundary_requests(_: Stage, target: Target) -> None:
    """Sends reads whose ranges touch every limit, and other requests beyond the end. A read either returns the right bytes
    or fails; a write must change nothing."""
    size = len(target.content)
    offsets = (
        0,
        1,
        511,
        4095,
        size - 4096,
        size - 1,
        size,
        size + 1,
        1 << 31,
        1 << 32,
        1 << 63,
        MAX_U64 - 4095,
        MAX_U64,
    )
    lengths = (0, 1, 512, 4096, 65537, REQUEST_BYTES_MAX)
    for offset in offsets:
        for length in lengths:
            _read(target, offset, length)
    for kind in (WRITE, FLUSH, TRIM, CACHE, WRITE_ZEROES, BLOCK_STATUS, 8, 255, 65535):
        for offset, length in ((size, 4 << 20), (size + (4 << 20), 4096), (MAX_U64, MAX_U32), (1 << 63, 1 << 31)):
            _other(target, kind, offset, length)
    for flags in (1, 2, 4, 8, 16, 0xFFFF):
        _other(target, READ, 0, 512, flags)


def _read(target: Target, offset: int, length: int) -> None:
    with Client(target.address) as client:
        client.go(target.export)
        client.request(READ, offset, length)
        try:
            error, data = client.reply(length)
        except (EOFError, ConnectionError):
            return
        if not error and data != target.content[offset : offset + length] and offset + length <= len(target.content):
            raise Broken(f"a read of {offset}+{length} returns wrong bytes")
        if not error and offset + length > len(target.content) + (4 << 20):
            raise Broken(f"a read of {offset}+{length} beyond the end succeeds")


def _other(target: Target, kind: int, offset: int, length: int, flags: int = 0) -> None:
    with Client(target.address) as client:
        client.go(target.export)
        data = bytes(length) if kind == WRITE and length < 65536 else b""
        client.socket.settimeout(0.2)
        # A server may wait for the data of a write, which never comes.
        with contextlib.suppress(EOFError, ConnectionError, TimeoutError):
            client.request(kind, offset, length, data=data, flags=flags)
            client.request(DISCONNECT, 0, 0)
            client.hung_up()


def options(stage: Stage, target: Target) -> None:
    """Sends thousands of options, well and badly formed, before and instead of an export's choice."""
    with Client(target.address) as client:
        client.greet()
        client.socket.settimeout(2)
        # A server may stop reading options while the answers are not read.
        with contextlib.suppress(EOFError, ConnectionError, TimeoutError):
            for _ in range(stage.times(1_000, 20_000)):
                client.option(LIST)
        with contextlib.suppress(TimeoutError):
            client.hung_up()
    names = (b"", b"\0" * 4096, b"\xff" * 4096, struct.pack(">I", MAX_U32), struct.pack(">II", 0, MAX_U32))
    for option in (0, 1, 2, LIST, 5, INFO, GO, STRUCTURED_REPLY, META_CONTEXT, 9, 11, 12, MAX_U32):
        for data in (*names, stage.random.randbytes(65536)):
            for length in (len(data), MAX_U32, 1 << 20):
                _option(target, option, data, length)


def _option(target: Target, option: int, data: bytes, length: int) -> None:
    with Client(target.address) as client, contextlib.suppress(EOFError, ConnectionError, TimeoutError):
        client.greet()
        client.option(option, data, length)
        client.socket.settimeout(0.05)
        client.take(20)


def garbage(stage: Stage, target: Target) -> None:
    """Sends random bytes instead of a handshake, of options and of requests."""
    for _ in range(stage.times(50, 500)):
        with Client(target.address) as client, contextlib.suppress(EOFError, ConnectionError, TimeoutError):
            client.socket.settimeout(1)
            stage_of_attack = stage.random.randrange(3)
            if stage_of_attack == 1:
                client.greet()
            if stage_of_attack == 2:
                client.go(target.export)
            client.socket.sendall(stage.random.randbytes(stage.random.randrange(1, 100_000)))
            client.socket.settimeout(0.05)
            client.hung_up()
