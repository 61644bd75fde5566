"""Attacks on finding nodes by mDNS: announcements of nodes that do not exist, answer nothing, lie, or have hostile names."""

import contextlib
import http.server
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from attack.stage import Broken, Skipped, Stage

GROUP, PORT = "224.0.0.251", 5353
SERVICE = "_cheetah._tcp.local."
LIARS = 300
LIMIT_S = 60.0
"""Looking for nodes takes 3 s, and a node that does not answer 2 s more."""


def spoofed(stage: Stage) -> None:
    """Announces hundreds of nodes beside a real one; a drive over the announced nodes has the real one only."""
    with contextlib.ExitStack() as stack:
        node = stack.enter_context(
            stage.server(
                "file", "node", "--memory", "64MiB", "--listen", "127.0.0.1:0", "--announce", "--name", "honest"
            )
        )
        drive = stage.path(".drive")
        words: list[str | Path] = [
            "create",
            drive,
            "--nodes",
            "auto",
            "--size",
            "1MiB",
            "--layout",
            "linear",
            "--timeout",
            "2",
        ]
        if stage.run(*words)[0] != 0:
            raise Skipped("multicast does not come back on this machine's loopback")
        stage.must("destroy", drive)
        silent = stack.enter_context(_silent())
        lying = stack.enter_context(_lying())
        stack.enter_context(_announcing([silent, lying, _closed()]))
        began = time.monotonic()
        said = stage.must("--json", *words)
        if (took := time.monotonic() - began) > LIMIT_S:
            raise Broken(f"spoofed announcements held `create --nodes auto` up for {took:.0f} s")
        if "honest" not in said or "liar" in said or "\x1b" in said:
            raise Broken(f"the drive has other nodes than the real one: {said}")
        stage.must("destroy", drive)
        node.check()


@contextlib.contextmanager
def _announcing(ports: list[int]) -> Iterator[None]:
    """Sends announcements of nodes whose control API is at these ports, again and again."""
    ended = threading.Event()
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
    sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)

    def announce() -> None:
        while not ended.is_set():
            for number in range(LIARS):
                name = f"liar\x1b[2J{number}" if number % 3 else f"liar {number} " + "x" * 40
                with contextlib.suppress(OSError):
                    sender.sendto(_announcement(name, ports[number % len(ports)]), (GROUP, PORT))
            ended.wait(0.3)

    thread = threading.Thread(target=announce, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        sender.close()


def _announcement(name: str, port: int) -> bytes:
    """Returns a multicast DNS response with the records of a service at 127.0.0.1, and at addresses that lead nowhere."""
    instance = _label(name) + _name(SERVICE)
    host = _label("liar") + _name("local.")
    texts = b"".join(bytes([len(text)]) + text for text in (b"http=%d" % port, b"instance=" + b"0" * 32))
    records = [
        _record(_name(SERVICE), 12, instance),
        _record(instance, 33, struct.pack(">HHH", 0, 0, port) + host),
        _record(instance, 16, texts),
        *(_record(host, 1, socket.inet_aton(address)) for address in ("127.0.0.1", "127.0.0.77", "192.0.2.1")),
    ]
    return struct.pack(">HHHHHH", 0, 0x8400, 0, len(records), 0, 0) + b"".join(records)


def _record(name: bytes, kind: int, data: bytes) -> bytes:
    return name + struct.pack(">HHIH", kind, 0x8001 if kind != 12 else 1, 120, len(data)) + data


def _name(dotted: str) -> bytes:
    return b"".join(_label(label) for label in dotted.rstrip(".").split(".")) + b"\0"


def _label(text: str) -> bytes:
    return bytes([len(text.encode())]) + text.encode()


def _closed() -> int:
    """Returns a port at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextlib.contextmanager
def _silent() -> Iterator[int]:
    """Listens at a port, and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as server:
        yield int(server.getsockname()[1])


@contextlib.contextmanager
def _lying() -> Iterator[int]:
    """A control API that answers with endless JSON."""

    class Endless(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(b'{"name":"liar')
                for _ in range(1 << 12):
                    self.wfile.write(b"x" * (1 << 14))

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endless)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
