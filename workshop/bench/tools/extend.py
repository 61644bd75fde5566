#!/usr/bin/env python3
"""An NBD server in front of another one, which extends every read by fixed amounts before and after it, and caches all
it has read: read-ahead and read-behind of a fixed size, as they were added to a copy-on-read file system in 2016.

`extend.py HOST PORT SOCKET AHEAD BEHIND [second]` serves the default export of the server at HOST:PORT on a Unix socket,
and says `ready`. Resident ranges are not requested again; with AHEAD and BEHIND 0 only that remains. AHEAD may be two
sizes, as in `4096-131072`: the read-ahead of the thesis of 2005, which begins with the first, doubles with each read
that follows the one before, up to the second, and begins anew after any other.
With `second`, a second read fetches the bytes ahead or behind, before the client's read is answered, as in 2016;
otherwise one larger read fetches all. A HOST that begins with a slash is a Unix socket.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import tempfile
import threading

PAGE_BYTES = 1024
READ_BYTES_MAX = 32 << 20

NBDMAGIC, IHAVEOPT, OPTION_REPLY = 0x4E42444D41474943, 0x49484156454F5054, 0x3E889045565A9
REQUEST, SIMPLE_REPLY = 0x25609513, 0x67446698
FIXED_NEWSTYLE, NO_ZEROES = 1, 2
OPT_EXPORT_NAME, OPT_ABORT, OPT_GO = 1, 2, 7
REP_ACK, REP_INFO, REP_ERR_UNSUP = 1, 3, (1 << 31) | 1
CMD_READ, CMD_DISC = 0, 2
EINVAL = 22
# Transmission flags: has flags, read-only, consistent over several connections.
EXPORT_FLAGS = 1 | 2 | 256


def receive(connection: socket.socket, count: int) -> bytes:
    """Returns exactly `count` bytes. Raises EOFError if the peer has gone."""
    data = bytearray(count)
    view = memoryview(data)
    while view:
        got = connection.recv_into(view)
        if not got:
            raise EOFError
        view = view[got:]
    return bytes(data)


class Remote:
    """A connection to the server behind this one."""

    def __init__(self, host: str, port: int) -> None:
        if host.startswith("/"):
            self._connection = socket.socket(socket.AF_UNIX)
            self._connection.connect(host)
        else:
            self._connection = socket.create_connection((host, port))
            self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        receive(self._connection, 18)
        flags = struct.pack("!I", FIXED_NEWSTYLE | NO_ZEROES)
        self._connection.sendall(flags + struct.pack("!QII", IHAVEOPT, OPT_EXPORT_NAME, 0))
        self.size: int = struct.unpack("!QH", receive(self._connection, 10))[0]

    def read(self, offset: int, length: int) -> bytes:
        """Reads a range; an error of the server is raised here."""
        self._connection.sendall(struct.pack("!IHHQQI", REQUEST, 0, CMD_READ, 0, offset, length))
        _, error, _ = struct.unpack("!IIQ", receive(self._connection, 16))
        if error:
            raise OSError(error, f"reading {length} bytes at {offset}")
        return receive(self._connection, length)


class PageStore:
    """The pages read so far, in an unlinked file."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._file = tempfile.TemporaryFile()
        self._present = bytearray(-(-size // PAGE_BYTES))
        self._lock = threading.Lock()

    def missing(self, offset: int, length: int, ahead: int, behind: int) -> tuple[int, int] | None:
        """Returns the range to read, in whole pages, to answer a read; None if all of it is stored."""
        first, last = offset // PAGE_BYTES, -(-(offset + length) // PAGE_BYTES)
        with self._lock:
            if all(self._present[first:last]):
                return None
            first = max(0, offset - behind) // PAGE_BYTES
            last = min(len(self._present), -(-(offset + length + ahead) // PAGE_BYTES))
            while self._present[first]:
                first += 1
            while self._present[last - 1]:
                last -= 1
        return first * PAGE_BYTES, min(last * PAGE_BYTES, self.size)

    def put(self, offset: int, data: bytes) -> None:
        """Stores data that begins at a page."""
        os.pwrite(self._file.fileno(), data, offset)
        count = -(-len(data) // PAGE_BYTES)
        with self._lock:
            self._present[offset // PAGE_BYTES : offset // PAGE_BYTES + count] = b"\1" * count

    def get(self, offset: int, length: int) -> bytes:
        """Returns stored data of a range that is complete."""
        return os.pread(self._file.fileno(), length, offset)


class Window:
    """How much is read ahead: the same each time if both sizes are equal."""

    def __init__(self, first: int, most: int) -> None:
        self._first, self._most = first, most
        self._next = first
        self._end = -1

    def ahead(self, offset: int, length: int) -> int:
        """Returns the bytes to read beyond this read."""
        follows = offset == self._end
        self._next = min(self._next * 2, self._most) if follows else self._first
        self._end = offset + length
        return self._next


def reads_of(span: tuple[int, int], offset: int, length: int, second: bool) -> list[tuple[int, int]]:
    """Returns the reads that fetch a span, as first and last byte: one, or first the part with the client's range, then each
    other part."""
    first, end = span
    if not second:
        return [span]
    # Whole pages, as the span itself.
    low = max(first, offset // PAGE_BYTES * PAGE_BYTES)
    high = min(end, -(-(offset + length) // PAGE_BYTES) * PAGE_BYTES)
    if low >= high:
        return [span]
    return [part for part in ((low, high), (high, end), (first, low)) if part[0] < part[1]]


class Extender:
    """Serves clients, each in a thread with its own connection."""

    def __init__(self, host: str, port: int, ahead: tuple[int, int], behind: int, second: bool = False) -> None:
        self._address = (host, port)
        self._ahead = ahead
        self._behind = behind
        self._second = second
        self._kept = PageStore(Remote(host, port).size)

    def serve(self, client: socket.socket) -> None:
        """Serves one client until it disconnects."""
        remote, window = Remote(*self._address), Window(*self._ahead)
        try:
            if self._agree(client):
                while self._answer(client, remote, window):
                    pass
        except (EOFError, ConnectionError):
            pass
        finally:
            client.close()

    def _agree(self, client: socket.socket) -> bool:
        """Performs the handshake; returns whether the transmission phase begins."""
        client.sendall(struct.pack("!QQH", NBDMAGIC, IHAVEOPT, FIXED_NEWSTYLE | NO_ZEROES))
        receive(client, 4)
        export = struct.pack("!QH", self._kept.size, EXPORT_FLAGS)
        while True:
            _, option, length = struct.unpack("!QII", receive(client, 16))
            receive(client, length)
            if option == OPT_EXPORT_NAME:
                client.sendall(export)
                return True
            if option == OPT_GO:
                client.sendall(struct.pack("!QIIIH", OPTION_REPLY, option, REP_INFO, 12, 0) + export)
                client.sendall(struct.pack("!QIII", OPTION_REPLY, option, REP_ACK, 0))
                return True
            kind = REP_ACK if option == OPT_ABORT else REP_ERR_UNSUP
            client.sendall(struct.pack("!QIII", OPTION_REPLY, option, kind, 0))
            if option == OPT_ABORT:
                return False

    def _answer(self, client: socket.socket, remote: Remote, window: Window) -> bool:
        """Answers one request; returns whether there may be more."""
        _, _, kind, cookie, offset, length = struct.unpack("!IHHQQI", receive(client, 28))
        if kind == CMD_DISC:
            return False
        if kind != CMD_READ or length > READ_BYTES_MAX or offset + length > self._kept.size:
            client.sendall(struct.pack("!IIQ", SIMPLE_REPLY, EINVAL, cookie))
            return True
        span = self._kept.missing(offset, length, window.ahead(offset, length), self._behind)
        for first, end in reads_of(span, offset, length, self._second) if span else []:
            self._kept.put(first, remote.read(first, end - first))
        client.sendall(struct.pack("!IIQ", SIMPLE_REPLY, 0, cookie) + self._kept.get(offset, length))
        return True


def main() -> None:
    """Entry point."""
    host, port, path, ahead, behind, *mode = sys.argv[1:]
    first, _, most = ahead.partition("-")
    extender = Extender(host, int(port), (int(first), int(most or first)), int(behind), mode == ["second"])
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        print("ready", flush=True)
        while True:
            client, _ = server.accept()
            threading.Thread(target=extender.serve, args=(client,), daemon=True).start()


if __name__ == "__main__":
    main()
