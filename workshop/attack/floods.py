"""More and slower clients than any server admits."""

import contextlib
import socket
import time

from attack.stage import Broken, Stage, until
from attack.targets import Target
from attack.wire import READ, REQUEST_BYTES_MAX, Client, connect


def connections(stage: Stage, target: Target) -> None:
    """Opens 3,000 connections and says nothing on any of them."""
    with contextlib.ExitStack() as stack:
        for _ in range(stage.times(300, 3_000)):
            with contextlib.suppress(OSError):
                stack.enter_context(contextlib.closing(connect(target.address)))
        target.alive()


def half_handshakes(stage: Stage, target: Target) -> None:
    """Opens connections that stop in mid-handshake, and resets them."""
    for _ in range(stage.times(200, 2_000)):
        with contextlib.suppress(OSError, EOFError), Client(target.address) as client:
            if target.address[0] != "/":
                # Resets the connection on close.
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.socket.settimeout(1)
            client.greet()
            client.option(7, b"", 1000)


def unread_pipelines(stage: Stage, target: Target) -> None:
    """100 clients pipeline 400 reads of 32 MiB each and read no reply. Another client must be served meanwhile, if the
    server has a place for it."""
    length = min(REQUEST_BYTES_MAX, len(target.content))
    with contextlib.ExitStack() as stack:
        clients = []
        # An agent admits 16.
        for _ in range(stage.times(12, 100)):
            with contextlib.suppress(OSError, EOFError):
                client = stack.enter_context(Client(target.address))
                client.go(target.export)
                clients.append(client)
        if len(clients) > 12:
            # One place for the bystander.
            clients.pop().socket.close()
        for client in clients:
            client.socket.setblocking(False)
            with contextlib.suppress(BlockingIOError, ConnectionError):
                for cookie in range(400):
                    client.request(READ, 0, length, cookie)
        target.alive()
        until(lambda: _served(target), "a bystander is served")


def _served(target: Target) -> bool:
    with contextlib.suppress(OSError, EOFError), Client(target.address) as client:
        client.go(target.export)
        began = time.monotonic()
        if client.read(4096, 4096) != target.content[4096:8192]:
            raise Broken("a bystander receives wrong bytes")
        if time.monotonic() - began > 20:
            raise Broken(f"a bystander waits for {time.monotonic() - began:.0f} s")
        return True
    return False
