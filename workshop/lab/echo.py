#!/usr/bin/env python3
"""Measures round trips by TCP, since `ping` may not be installed.

`echo.py serve ADDRESS PORT` answers one connection; `echo.py ask ADDRESS PORT` prints the median of 200 round
trips of one byte, in microseconds; `echo.py ask ADDRESS PORT COUNT` measures COUNT of them.
"""

from __future__ import annotations

import socket
import statistics
import sys
import time

ROUND_TRIPS = 200


def serve(address: str, port: int) -> None:
    """Echoes the bytes of one client."""
    with socket.create_server((address, port)) as server:
        print("ready", flush=True)
        connection, _ = server.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while byte := connection.recv(1):
                connection.sendall(byte)


def ask(address: str, port: int, round_trips: int = ROUND_TRIPS) -> float:
    """Returns the median round trip in microseconds."""
    samples_us = []
    with socket.create_connection((address, port), timeout=10) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(round_trips):
            start = time.perf_counter()
            connection.sendall(b".")
            connection.recv(1)
            samples_us.append((time.perf_counter() - start) * 1e6)
    return statistics.median(samples_us)


if __name__ == "__main__":
    verb, host, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if verb == "serve":
        serve(host, number)
    else:
        print(f"{ask(host, number, *map(int, sys.argv[4:5])):.0f}")
