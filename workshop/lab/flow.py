#!/usr/bin/env python3
"""Measures the throughput of a link with one TCP stream, without `iperf3`, which may not be installed.

`flow.py serve ADDRESS PORT SECONDS` sends to a client for that long; `flow.py ask ADDRESS PORT SECONDS` receives,
and prints the rate in bits a second, as frames on the wire. The first quarter is not counted, while the stream finds
the rate.

On the wire, each segment of TCP's payload is in a frame: 14 bytes of Ethernet, and the headers within the MTU (IP, TCP,
options). So the rate is payload × (MTU + 14) ÷ segment. Acknowledgements travel the other way and are not included.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import sys
import time

ETHERNET_BYTES = 14
SIOCGIFMTU = 0x8921
PIECE_BYTES = 256 << 10
WARM_UP_SHARE = 0.25


def serve(address: str, port: int, seconds: float) -> None:
    """Sends to one client until the time is up or it disconnects."""
    piece = bytes(PIECE_BYTES)
    with socket.create_server((address, port)) as server:
        print("ready", flush=True)
        connection, _ = server.accept()
        deadline = time.monotonic() + seconds
        with connection:
            connection.settimeout(seconds + 10)
            try:
                while time.monotonic() < deadline:
                    connection.sendall(piece)
            except OSError:
                return


def frame_bytes_per_payload(connection: socket.socket) -> float:
    """Returns the bytes on the wire per byte of payload on this connection, with full segments."""
    with socket.socket() as any_socket:
        answer = fcntl.ioctl(any_socket, SIOCGIFMTU, struct.pack("16si", b"eth0", 0))
    mtu_bytes: int = struct.unpack("16si", answer)[1]
    segment_bytes = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
    return (mtu_bytes + ETHERNET_BYTES) / segment_bytes


def ask(address: str, port: int, seconds: float) -> float:
    """Receives for that long; returns bits per second on the wire, once the stream is up to speed."""
    buffer = bytearray(PIECE_BYTES)
    with socket.create_connection((address, port), timeout=10) as connection:
        start = time.perf_counter()
        counted_from, counted_bytes = 0.0, 0
        last = start
        while last < start + seconds:
            got = connection.recv_into(buffer)
            if not got:
                break
            last = time.perf_counter()
            if counted_from:
                counted_bytes += got
            elif last - start >= seconds * WARM_UP_SHARE:
                counted_from = last
        if not counted_from or last <= counted_from:
            return 0.0
        return counted_bytes * frame_bytes_per_payload(connection) * 8 / (last - counted_from)


if __name__ == "__main__":
    verb, host, number, duration = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    if verb == "serve":
        serve(host, number, duration)
    else:
        print(f"{ask(host, number, duration):.0f}")
