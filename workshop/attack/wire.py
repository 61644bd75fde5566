"""An NBD client that sends valid and invalid messages on demand."""

import socket
import struct
from typing import Self

from attack.stage import PATIENCE_S, Broken

OPTION_MAGIC = 0x49484156454F5054
REPLY_MAGIC = 0x3E889045565A9
REQUEST_MAGIC = 0x25609513
SIMPLE_MAGIC = 0x67446698
LIST, INFO, GO, STRUCTURED_REPLY, META_CONTEXT = 3, 6, 7, 8, 10
READ, WRITE, DISCONNECT, FLUSH, TRIM, CACHE, WRITE_ZEROES, BLOCK_STATUS = range(8)
REQUEST_BYTES_MAX = 32 << 20


def connect(address: str) -> socket.socket:
    """Returns a connection to "host:port" or to the Unix socket at a path."""
    if address.startswith("/"):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(PATIENCE_S)
        connection.connect(address)
        return connection
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), PATIENCE_S)


class Client:
    """A connection to an NBD server."""

    def __init__(self, address: str):
        self.socket = connect(address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def greet(self) -> None:
        """Does the first step of the handshake."""
        if self.take(8) != b"NBDMAGIC":
            raise Broken("the server's greeting is wrong")
        self.take(10)
        self.socket.sendall(struct.pack(">I", 3))

    def option(self, option: int, data: bytes = b"", length: int | None = None) -> None:
        """Sends an option; `length` replaces the length in its header."""
        length = len(data) if length is None else length
        self.socket.sendall(struct.pack(">QII", OPTION_MAGIC, option, length & 0xFFFFFFFF) + data)

    def go(self, export: str) -> int:
        """Opens an export, and returns its size."""
        self.greet()
        name = export.encode()
        self.option(GO, struct.pack(">I", len(name)) + name + struct.pack(">H", 0))
        size = 0
        while True:
            magic, _, kind, length = struct.unpack(">QIII", self.take(20))
            data = self.take(length)
            if magic != REPLY_MAGIC or kind >= 1 << 31:
                raise Broken(f"the export is refused: {data.decode(errors='replace')}")
            if kind == 1:
                return size
            if kind == 3 and data[:2] == b"\0\0":
                size = int(struct.unpack(">Q", data[2:10])[0])

    def request(self, kind: int, offset: int, length: int, cookie: int = 1, data: bytes = b"", flags: int = 0) -> None:
        """Sends a request."""
        self.socket.sendall(struct.pack(">IHHQQI", REQUEST_MAGIC, flags, kind, cookie, offset, length) + data)

    def reply(self, length: int = 0) -> tuple[int, bytes]:
        """Receives a simple reply: its error, and the `length` bytes of a read that succeeded."""
        magic, error, _ = struct.unpack(">IIQ", self.take(16))
        if magic != SIMPLE_MAGIC:
            raise Broken(f"a reply starts with {magic:#x}")
        return error, b"" if error else self.take(length)

    def read(self, offset: int, length: int) -> bytes:
        """Reads a range that must be readable."""
        self.request(READ, offset, length)
        error, data = self.reply(length)
        if error:
            raise Broken(f"a read of {offset}+{length} fails with {error}")
        return data

    def take(self, length: int) -> bytes:
        """Receives this many bytes. EOFError if the server hangs up first."""
        parts = bytearray()
        while len(parts) < length:
            part = self.socket.recv(min(length - len(parts), 1 << 20))
            if not part:
                raise EOFError
            parts += part
        return bytes(parts)

    def hung_up(self) -> bool:
        """Waits until the server closes the connection, and ignores its data."""
        try:
            while self.socket.recv(1 << 20):
                pass
        except ConnectionError:
            pass
        return True
