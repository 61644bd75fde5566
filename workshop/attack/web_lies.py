"""Web servers that lie to `acquire`: about ranges, sizes and versions, and with answers that do not end."""

import re
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from attack.liars import HOSTILE, acquired, each, listening
from attack.stage import Broken, Stage

SIZE = 3 << 20
HEAD_BYTES_MAX = 1 << 16


@dataclass
class Answer:
    """The answer to a request for a range, which a lie changes."""

    first: int
    body: bytes
    number: int
    """How many requests there were on this connection, with this one, and on those before."""
    status: str = "206 Partial Content"
    etag: str = '"v1"'
    size: int | str = SIZE
    more: str = ""
    length: int | None = None
    is_last: bool = False
    """Whether the connection is closed behind it."""

    def range(self) -> str:
        """The value of Content-Range."""
        return f"bytes {self.first}-{self.first + len(self.body) - 1}/{self.size}"

    def text(self, content_range: str | None = None) -> bytes:
        """Returns the head of the answer."""
        length = len(self.body) if self.length is None else self.length
        lines = [
            f"HTTP/1.1 {self.status}",
            f"Content-Range: {content_range or self.range()}",
            f"Content-Length: {length}",
        ]
        if self.etag:
            lines.append(f"ETag: {self.etag}")
        return ("\r\n".join(lines) + f"\r\n{self.more}\r\n").encode("latin-1", errors="replace")


Lie = Callable[[socket.socket, Answer], None]


def _send(connection: socket.socket, answer: Answer) -> None:
    connection.sendall(answer.text() + answer.body)
    if answer.is_last:
        raise EOFError


def _with(**changes: object) -> Lie:
    """An answer with other values."""

    def lie(connection: socket.socket, answer: Answer) -> None:
        for name, value in changes.items():
            setattr(answer, name, value)
        _send(connection, answer)

    return lie


def _later(lie: Lie) -> Lie:
    """A lie that begins with the second request, when the file is open."""
    return lambda connection, answer: (lie if answer.number > 1 else _send)(connection, answer)


def _ranged(content_range: str) -> Lie:
    return lambda connection, answer: connection.sendall(answer.text(content_range) + answer.body)


def _whole(connection: socket.socket, answer: Answer) -> None:
    connection.sendall(b'HTTP/1.1 200 OK\r\nETag: "v1"\r\nContent-Length: %d\r\n\r\n' % SIZE + bytes(SIZE))


def _other_range(connection: socket.socket, answer: Answer) -> None:
    answer.first += 512
    _send(connection, answer)


def _shorter(connection: socket.socket, answer: Answer) -> None:
    answer.body = answer.body[:-3]
    _send(connection, answer)


def _cut_short(connection: socket.socket, answer: Answer) -> None:
    connection.sendall(answer.text() + answer.body[: len(answer.body) // 2])
    raise EOFError


def _longer(connection: socket.socket, answer: Answer) -> None:
    connection.sendall(answer.text() + answer.body + b"HTTP/1.1 206 more\r\n" * 100)


def _claims(more: int) -> Lie:
    """Claims to send more bytes, or fewer."""

    def lie(connection: socket.socket, answer: Answer) -> None:
        answer.length, answer.is_last = len(answer.body) + more, True
        _send(connection, answer)

    return lie


def _repeats(header: str) -> Lie:
    return _with(more=f"{header}\r\n")


def _chunked(connection: socket.socket, answer: Answer) -> None:
    head = f"HTTP/1.1 206 x\r\nETag: {answer.etag}\r\nContent-Range: {answer.range()}\r\n"
    connection.sendall(head.encode() + b"Transfer-Encoding: gzip, chunked\r\n\r\n")
    connection.sendall(b"%x\r\n" % len(answer.body) + answer.body + b"\r\n0\r\n\r\n")


def _endless(before: str, again: bytes, pause_s: float = 0) -> Lie:
    """Sends the same without end."""

    def lie(connection: socket.socket, answer: Answer) -> None:
        connection.sendall(before.format(range=answer.range()).encode())
        while True:
            connection.sendall(again)
            time.sleep(pause_s)

    return lie


CHUNKED = 'HTTP/1.1 206 x\r\nETag: "v1"\r\nContent-Range: {range}\r\nTransfer-Encoding: chunked\r\n\r\n'
LIES: dict[str, Lie] = {
    "another range": _later(_other_range),
    "the range 0-0": _later(_ranged(f"bytes 0-0/{SIZE}")),
    "a range in reverse": _later(_ranged(f"bytes 9-0/{SIZE}")),
    "a range with signs": _later(_ranged(f"bytes +0-+9/{SIZE}")),
    "a range beyond all numbers": _ranged("bytes 0-18446744073709551615/18446744073709551616"),
    "a range of words": _ranged(f"bytes {HOSTILE}"),
    "two ranges": _later(_repeats(f"Content-Range: bytes 0-1/{SIZE}")),
    "several parts": _later(_repeats("Content-Type: multipart/byteranges; boundary=x")),
    "the whole file": _whole,
    "later the whole file": _later(_whole),
    "a short body": _later(_shorter),
    "a body that is cut short": _later(_cut_short),
    "a long body": _later(_longer),
    "a length that is too great": _later(_claims(9)),
    "a length that is too small": _later(_claims(-9)),
    "a length of 2^64": _later(_with(length=1 << 64)),
    "a negative length": _later(_with(length=-1)),
    "two lengths": _later(_repeats("Content-Length: 7")),
    "size 0": _ranged("bytes 0-0/0"),
    "size 2^63 - 1": _with(size=(1 << 63) - 1),
    "size 2^64": _with(size=1 << 64),
    "a size that grows": _later(_with(size=SIZE + 1)),
    "a size that is not told": _with(size="*"),
    "another version": _later(_with(etag='"v2"')),
    "no version": _with(etag=""),
    "later no version": _later(_with(etag="")),
    "two versions": _later(_repeats('ETag: "v2"')),
    "a version that controls the terminal": _with(etag='"v\x9b31m"'),
    "a status that controls the terminal": _with(status="403 \x9b31m", body=HOSTILE.encode()),
    "a place that controls the terminal": _with(status="302 Found", more="Location: /\x9b31m\r\n"),
    "a redirection to itself": _with(status="302 Found", more="Location: /disk.raw\r\n"),
    "an encoding": _later(_repeats("Content-Encoding: gzip")),
    "two encodings": _later(_repeats("Content-Encoding: identity\r\nContent-Encoding: gzip")),
    "an encoded transfer": _later(_chunked),
    "endless headers": _endless("HTTP/1.1 206 x\r\n", b"X: a\r\n" * 1000),
    "a header without end": _endless("HTTP/1.1 206 x\r\nX: ", b"a" * 60_000),
    "endless hints": _endless("", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", 0.001),
    "an endless body": _later(_endless(CHUNKED, b"10000\r\n" + b"a" * 65536 + b"\r\n")),
    "endless empty lines": _endless("", b"\r\n" * 1000),
    "garbage": _endless("\x1b]0;garbage", b"\xff\x1b[2J\0" * 1000),
}
"""No outcome but a refusal is right for these, except for those below."""
HARMLESS = (
    "a long body", "several parts", "two ranges", "two versions", "two encodings", "an encoded transfer",
    "a version that controls the terminal",
)  # fmt: skip
"""The bytes themselves are right."""


def _serve(lie: Lie, content: bytes, connection: socket.socket, connected: int) -> None:
    count, buffered = connected - 1, b""
    while True:
        while b"\r\n\r\n" not in buffered:
            part = connection.recv(HEAD_BYTES_MAX)
            if not part:
                return
            buffered += part
        head, _, buffered = buffered.partition(b"\r\n\r\n")
        count += 1
        found = re.search(rb"(?i)range: bytes=(\d+)-(\d+)", head)
        first, last = (int(found[1]), min(int(found[2]), SIZE - 1)) if found else (0, SIZE - 1)
        lie(connection, Answer(first, content[first : last + 1], count))


def lies(stage: Stage) -> None:
    """Acquires from each server: all bytes are right, or the acquisition fails in order."""
    content = stage.random.randbytes(SIZE)

    def case(lie: Lie, codes: tuple[int, ...]) -> None:
        with listening(partial(_serve, lie, content)) as port:
            code, out, complaint = acquired(stage, f"http://127.0.0.1:{port}/disk.raw", content)
        if code not in codes:
            raise Broken(f"it ended with {code}: {out}{complaint}"[-400:])

    refused, either = (1, 2, 3), (0, 1, 2, 3)
    cases = {name: partial(case, lie, either if name in HARMLESS else refused) for name, lie in LIES.items()}
    each({"the truth": partial(case, _send, (0,)), **cases})
