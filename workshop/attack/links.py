"""Links to nodes that can be cut and held: a TCP proxy in front of each node's two ports."""

import contextlib
import socket
import threading
from typing import Self

HOST = "127.0.0.2"


class Link:
    """A proxy at HOST, on the ports of a node at 127.0.0.1. `hold` keeps back everything that is sent, as an unplugged cable
    does; `cut` ends all connections and refuses new ones."""

    def __init__(self, *ports: int):
        self._open = threading.Event()
        self._open.set()
        self._cut = False
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()
        self._listeners = [socket.create_server((HOST, port)) for port in ports]
        for listener in self._listeners:
            threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        for listener in self._listeners:
            # Wakes the thread that accepts.
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def hold(self) -> None:
        """From now on, nothing arrives."""
        self._open.clear()

    def cut(self) -> None:
        """From now on, connections end at once."""
        with self._lock:
            self._cut = True
            pairs = list(self._pairs)
        self._open.set()
        for pair in pairs:
            _end(pair)

    def restore(self) -> None:
        """The link works again."""
        self._cut = False
        self._open.set()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                here, _ = listener.accept()
                threading.Thread(target=self._serve, args=(here, listener.getsockname()[1]), daemon=True).start()

    def _serve(self, here: socket.socket, port: int) -> None:
        self._open.wait()
        try:
            there = socket.create_connection(("127.0.0.1", port))
        except OSError:
            here.close()
            return
        for end in (here, there):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pair = (here, there)
        with self._lock:
            self._pairs.add(pair)
            is_cut = self._cut
        if is_cut:
            _end(pair)
        back = threading.Thread(target=self._pump, args=(there, here), daemon=True)
        back.start()
        self._pump(here, there)
        back.join()
        with self._lock:
            self._pairs.discard(pair)
        here.close()
        there.close()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 18):
                self._open.wait()
                sink.sendall(data)
        _end((source, sink))


def _end(pair: tuple[socket.socket, socket.socket]) -> None:
    for end in pair:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
