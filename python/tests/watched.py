"""`cheetah watch` and what it watches, for the tests of its page."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import subprocess
import threading
import urllib.request
from pathlib import Path
from typing import Any

from conftest import PATIENCE_S


class Watch:
    """`cheetah watch`, and its page."""

    def __init__(
        self, binary: str, *argv: str, folder: Path | None = None, listen: str = "127.0.0.1:0", **environment: str
    ) -> None:
        # A machine that is killed refuses at once. One that is only slow, because this machine is busy, does not count as silent.
        words = [binary, "--json", "watch", "--listen", listen, "--timeout", "60", *argv]
        env = os.environ | environment
        self.child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=folder, env=env)
        assert self.child.stdout
        self.url = str(json.loads(self.child.stdout.readline())["url"])

    def picture(self) -> dict[str, Any]:
        """The picture as JSON."""
        at, secret = self.url.split("/#")
        request = urllib.request.Request(f"{at}/picture", headers={"Authorization": f"Bearer {secret}"})
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return dict(json.loads(answer.read()))

    def close(self) -> None:
        """Ends it."""
        self.child.send_signal(signal.SIGINT)
        self.child.wait(PATIENCE_S)


def status(index: int) -> dict[str, Any]:
    """The status of a simulated node."""
    memory = {
        "lent_bytes": (8 + index % 9) << 30,
        "used_bytes": index << 24,
        "free_bytes": 4 << 30,
        "locked": index != 7,
    }
    memory |= {"usable_bytes": 7 << 30, "reserved_bytes": 0, "ready_bytes": 0, "wiped_bytes": 1 << 20}
    name = "<img src=x onerror=document.title='run'>" if index == 13 else f"pc-{index:03}"
    rest = {"version": "1", "instance": f"{index:032x}", "nbd_port": 1, "http_port": 2, "uptime_s": 60, "exports": []}
    return {"name": name, "memory": memory, "disks_visible": 0, "boot_image": index % 2 == 0} | rest


class Crowd:
    """Servers that answer as nodes do, at addresses of loopback."""

    def __init__(self, count: int) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        self._loop = asyncio.new_event_loop()
        self._servers: dict[int, asyncio.Server] = {}
        self._answers: dict[int, bytes] = {}
        self._callers: dict[int, list[asyncio.StreamWriter]] = {}
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        for index in range(count):
            self.say(index)
        self.names = [self._do(self._start(index)) for index in range(count)]

    def _do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    async def _start(self, index: int, port: int = 0) -> str:
        host = f"127.1.{index // 250}.{index % 250 + 1}"

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._callers.setdefault(index, []).append(writer)
            try:
                while await reader.readuntil(b"\r\n\r\n"):
                    writer.write(self._answers[index])
            except (asyncio.IncompleteReadError, ConnectionError):
                writer.close()

        server = await asyncio.start_server(answer, host, port)
        self._servers[index] = server
        return f"{host}:{server.sockets[0].getsockname()[1] - 1}"

    def say(self, index: int, **memory: int) -> None:
        """Has one of them say other figures of its memory from now on."""
        said = status(index)
        said["memory"] |= memory
        body = json.dumps(said).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self._answers[index] = head.encode() + body

    def start_again(self, index: int) -> None:
        """Starts one of them again where it was, as the same instance."""
        self._do(self._start(index, int(self.names[index].rpartition(":")[2]) + 1))

    def stop(self, index: int) -> None:
        """Stops one of them, as if its process were killed."""

        async def end() -> None:
            self._servers[index].close()
            for writer in self._callers.pop(index, []):
                writer.transport.abort()

        self._do(end())

    def close(self) -> None:
        """Stops all of them."""
        for index in self._servers:
            self.stop(index)
        self._loop.call_soon_threadsafe(self._loop.stop)


NOW_MS = 1_795_862_400_000
GIB = 1 << 30


def machine(index: int, **changes: Any) -> dict[str, Any]:
    """A machine of a picture."""
    lends = {
        "boot_image": index % 2 == 0,
        "disks_visible": index % 2,
        "draining": False,
        "dropped": [],
        "exports": 1,
        "free_bytes": 3 * GIB,
        "lent_bytes": 14 * GIB,
        "locked": True,
        "read_bytes_per_s": 96 << 20,
        "uptime_s": 4000,
        "used_bytes": 11 * GIB,
        "version": "0.1.0",
        "wiped_bytes": 2 * GIB,
    }
    found = {
        "address": f"10.0.{index // 250}.{index % 250 + 1}:10810",
        "last_seen_ms": NOW_MS,
        "lends": lends,
        "name": f"laboratory-{index:03}",
        "problem": None,
        "restarts": 0,
        "role": "node",
        "state": "ok",
    }
    return found | changes


def gone(index: int) -> dict[str, Any]:
    """A machine of a picture on which no node runs any more."""
    found = machine(index, last_seen_ms=NOW_MS - 12_000, lends=None, state="lost")
    why = "cannot connect: Connection refused; is a node running there?"
    return found | {"problem": f"{found['address']}: {why}"}


def part_of_drive(index: int, **changes: Any) -> dict[str, Any]:
    """What a picture has of a drive's node."""
    found = {
        "node": f"laboratory-{index:03}",
        "set": 0,
        "nbd": f"nbd://10.0.{index // 250}.{index % 250 + 1}:10809/case42-0123456789abcdef-{index}",
        "size_bytes": 12 * GIB,
        "state": "ok",
        "problem": None,
        "used_bytes": GIB,
        "reserved": True,
        "connections": 1,
        "writer": "ann@examiner-of-the-laboratory, process 4711",
        "transport": "TLS 1.3",
    }
    return found | changes


def drive(nodes: int) -> dict[str, Any]:
    """A drive of a picture: part of it is unreadable, and its first node is lost."""
    parts = [part_of_drive(index) for index in range(nodes)]
    parts[0] |= {"state": "lost", "problem": gone(0)["problem"], "writer": None, "transport": None, "used_bytes": None}
    cells = ["l" * 64, "rzrx" + "r" * 50 + "u" * 10, *["v" * 64] * (nodes - 2)]
    covered = {"read_bytes": 40 * GIB, "unread_bytes": 8 * GIB, "unreadable_bytes": 4096, "unreadable_ranges": 1}
    image = {"source": "/evidence/2026-11-28/a-long-name-of-a-case/disk.E01", "size_bytes": 48 * GIB}
    status = {
        "name": "case42",
        "id": "0" * 32,
        "size_bytes": 48 * GIB,
        "layout": f"parity of 64KiB over {nodes} nodes",
        "sealed_for": ["age1qqqqqqqq"],
        "image": image | {"state": "filling", "hashes": {}},
        "covered": covered | {"filler": parts[1]["writer"]},
        "content": "whole",
        "healthy": False,
        "survives_losses": 0,
        "survives_losses_max": 1,
        "nodes": parts,
        "acting_as": "ann (examiner) of room lab",
    }
    verification = {"at": "2026-11-28T08:00:00Z", "at_nodes_bytes": GIB, "holds": False, "ok": True}
    chart = [{"node": part["node"], "cells": row} for part, row in zip(parts, cells, strict=True)]
    return {
        "chart": chart,
        "file": "/cases/42/case42.drive",
        "problem": None,
        "status": status,
        "verification": verification,
        "wiped": ["laboratory-999"],
    }


def jobs() -> list[dict[str, Any]]:
    """A job of each kind."""
    common = {
        "bytes_per_s": 96 << 20,
        "drive": "case42",
        "left_s": 75,
        "node": None,
        "to": None,
        "total_bytes": 48 * GIB,
    }
    common |= {"writer": "ann@examiner-of-the-laboratory, process 4711"}
    return [
        common | {"kind": "fill", "done_bytes": 40 * GIB, "unreadable_bytes": 4096, "unreadable_ranges": 1},
        common | {"kind": "load", "done_bytes": 30 * GIB, "unreadable_bytes": 0, "unreadable_ranges": 0},
        common
        | {"kind": "resynchronize", "done_bytes": 20 * GIB, "unreadable_bytes": None, "unreadable_ranges": None}
        | {"node": "laboratory-002", "writer": None, "bytes_per_s": None, "left_s": None},
        common
        | {"kind": "move", "done_bytes": 9 * GIB, "unreadable_bytes": None, "unreadable_ranges": None}
        | {"node": "laboratory-001", "to": "laboratory-009"},
    ]


def picture(machines: int = 4, nodes: int = 3) -> dict[str, Any]:
    """A picture in which each part of the page has something to show."""
    capacity = {"at": "2026-11-28T07:40:00Z", "at_least": False, "bytes_per_s": 118 << 20, "method": "trains"}
    most = {"at_ms": NOW_MS - 60_000, "bytes_per_s": 112 << 20}
    link = {"capacity": capacity, "host": "laboratory-001", "most": most, "read_bytes_per_s": 96 << 20}
    record = {"seq": 1, "time": "2026-11-28T08:01:00Z", "user": "ann", "event": "retry", "text": "sector 4711"}
    log = {"log": "/cases/42/case42.drive.custody", "problems": ["line 3: altered"], "records": [record]}
    others = [machine(index) for index in range(2, machines)]
    others[0]["lends"]["locked"] = False
    others[1]["lends"]["draining"] = True
    sentence = (
        "case42 is PARTIAL: 4KiB of the source could not be read, in 1 range; 1 of the machines runs no node any more."
    )
    totals = {"answering": machines - 1, "machines": machines}
    return {
        "at_ms": NOW_MS,
        "custody": [log],
        "drives": [drive(nodes)],
        "jobs": jobs(),
        "links": [link],
        "machines": [gone(0), machine(1), *others],
        "room": "lab",
        "sentence": sentence,
        "state": "attention",
        "totals": totals | {"free_bytes": 9 * GIB, "lent_bytes": 42 * GIB, "used_bytes": 33 * GIB},
    }
