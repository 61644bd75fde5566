"""What the attacks with lying servers share: a server on loopback, a text that would control a terminal, and the judgement
of an acquisition."""

import contextlib
import socket
import threading
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from attack.stage import PATIENCE_S, Broken, Stage

HOSTILE = "\nerror: forged\x1b]0;title\x07\x1b[2J\x1b[31mred\rforged\x9b31m\u202e"
"""Adds a line, sets the title of a terminal, clears it, returns to the beginning of the line, and changes the direction of writing."""
AT_ONCE = 12
"""The number of acquisitions at once. Most of them only wait."""

Ran = tuple[int, str, str]


@contextlib.contextmanager
def listening(serve: Callable[[socket.socket, int], None]) -> Iterator[int]:
    """Serves each connection in a thread, with its number from 1 on; yields the port."""
    connections: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def one(connection: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError, EOFError), connection:
            serve(connection, number)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connections.append(connection)
                threads.append(threading.Thread(target=one, args=(connection, len(connections)), daemon=True))
                threads[-1].start()

    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            _hang_up(listener)
            accepting.join(PATIENCE_S)
            for connection in connections:
                _hang_up(connection)
            for thread in threads:
                thread.join(PATIENCE_S)


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def take(connection: socket.socket, length: int) -> bytes:
    """Receives this many bytes. EOFError if the client hangs up first."""
    data = bytearray()
    while len(data) < length:
        part = connection.recv(length - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


def each(cases: Mapping[str, Callable[[], None]]) -> None:
    """Runs all cases, some at once; names those that broke."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = {name: pool.submit(case) for name, case in cases.items()}
    broken = [f"{name}: {error}" for name, case in running.items() if (error := case.exception())]
    if broken:
        raise Broken(f"{len(broken)} of {len(cases)} cases: " + "; ".join(broken[:5]))


def acquired(stage: Stage, uri: str, content: bytes, *more: str | Path) -> Ran:
    """Acquires a source that lies. The image is whole, or there is none."""
    copy = stage.path(".raw")
    ran = stage.run("acquire", uri, copy, "--timeout", "2", "--retry-for", "2", *more)
    check_words(ran)
    if ran[0] == 0 and copy.read_bytes() != content:
        raise Broken("an image of other bytes is called complete")
    if ran[0] != 0 and copy.exists():
        raise Broken(f"an acquisition that failed with {ran[0]} left an image under its final name")
    return ran


def check_words(ran: Ran) -> None:
    """The exit code is one of the documented ones, no thread panicked, and nothing controls a terminal."""
    code, out, complaint = ran
    said = out + complaint
    if code not in (0, 1, 2, 3) or "panicked" in said:
        raise Broken(f"it ended with {code}: {said[-400:]!r}")
    hostile = [letter for letter in said if letter != "\n" and unicodedata.category(letter) in ("Cc", "Cf")]
    if hostile:
        raise Broken(f"it wrote what controls a terminal, {set(hostile)}: {said[-400:]!r}")
    if any(line.startswith("error: forged") for line in said.splitlines()):
        raise Broken(f"a peer added a line to what it wrote: {said[-400:]!r}")
    if code != 0 and not complaint.strip() and '"error"' not in out:
        raise Broken(f"it failed with {code} without a word")
