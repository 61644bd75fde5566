"""Malformed HTTP against the control port of a node and the port at which nodes join."""

import contextlib
from functools import partial

from attack.stage import PATIENCE_S, Broken, Stage, until
from attack.wire import connect

_HOST = b"Host: a\r\n"
REQUESTS = (
    b"", b"\r\n\r\n", b"\0" * 1000, b"GET", b"GET /\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"get / http/1.1\r\n\r\n",
    b"GET /v1/status HTTP/1.1\r\n\r\n", b"GET " + b"/" * 100_000 + b" HTTP/1.1\r\n\r\n",
    b"GET /v1/../../etc/passwd HTTP/1.1\r\n" + _HOST + b"\r\n", b"GET /%00%ff%2e%2e HTTP/1.1\r\n" + _HOST + b"\r\n",
    b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 10_000 + b"\r\n", b"GET / HTTP/1.1\r\nA: " + b"b" * 1_000_000 + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"GET / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
    b"POST /v1/exports HTTP/1.1\r\n" + _HOST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n{}",
    b"POST /v1/exports HTTP/1.1\r\n" + _HOST + b"Content-Length: 4000000000\r\n\r\n" + b"[" * 1_000_000,
    b"POST /v1/exports HTTP/1.1\r\n" + _HOST + b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\nx",
    b"POST /v1/exports HTTP/1.1\r\n" + _HOST + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    b"POST /v1/exports HTTP/1.1\r\n" + _HOST + b"Expect: 100-continue\r\nContent-Length: 10\r\n\r\n",
    b"DELETE /v1/exports/" + b"x" * 4096 + b" HTTP/1.1\r\n" + _HOST + b"\r\n",
    b"OPTIONS * HTTP/1.1\r\n" + _HOST + b"\r\n", b"CONNECT a:1 HTTP/1.1\r\n" + _HOST + b"\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET / HTTP/1.1\r\nHost: \xff\xfe\r\n\r\n", b"GET / HTTP/1.1\n\n\n",
)  # fmt: skip
BODIES = (
    b"{", b"[" * 50_000, b'{"name":1}', b'{"name":"' + b"a" * 10_000 + b'","size_bytes":1}', b'{"size_bytes":-1}', b"null",
    b'{"name":"a/../b","size_bytes":18446744073709551615}', b'{"name":"a","size_bytes":1e400}', b"\xff" * 100, b'"\\ud800"',
)  # fmt: skip
PATHS = (b"/v1/exports", b"/v1/join", b"/v1/exports/a/lease", b"/v1/status", b"/metrics")


def malformed(stage: Stage, stderr: str) -> None:
    """Sends malformed requests to a node's control port and to `create --wait`; both must answer afterwards."""
    with stage.node(stderr) as node:
        wait = ("create", stage.path(".drive"), "--wait", "1", "--listen", "127.0.0.1:0", "--size", "1MiB")
        with stage.server(stderr, *wait) as waiting:
            for address in (node.ready["http"], waiting.ready["listen"]):
                for request in (*REQUESTS, *_posts()):
                    _send(address, request)
                _hold(stage, address)
                until(partial(_answers, address), f"{address} answers")
                node.check()
                waiting.check()
            waiting.process.kill()
            waiting.process.wait()


def _posts() -> list[bytes]:
    head = b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
    return [head % (path, len(body), body) for path in PATHS for body in BODIES]


def _send(address: str, request: bytes) -> None:
    with contextlib.suppress(OSError), contextlib.closing(connect(address)) as connection:
        connection.settimeout(0.2)
        connection.sendall(request)
        answer = connection.recv(65536)
        if answer.startswith(b"HTTP/1.1 2") and b"/etc" in request:
            raise Broken(f"{address} accepts {request[:60]!r}")


def _hold(stage: Stage, address: str) -> None:
    """Opens many connections that never finish a request."""
    with contextlib.ExitStack() as stack:
        for _ in range(stage.times(200, 3_000)):
            with contextlib.suppress(OSError):
                connection = stack.enter_context(contextlib.closing(connect(address)))
                connection.sendall(b"GET / HTTP/1.1\r\nA")


def _answers(address: str) -> bool:
    with contextlib.suppress(OSError), contextlib.closing(connect(address)) as connection:
        connection.settimeout(PATIENCE_S)
        connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        return connection.recv(5) == b"HTTP/"
    return False
