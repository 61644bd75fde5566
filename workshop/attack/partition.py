"""Two writers of a redundant drive, on both sides of a network that was cut in two, each with a copy of the drive file.

A write that was acknowledged, with its flush, is there after the network is whole again, or the drive is not opened and both
sides are named. Parity may lose, as an error, the group of units that was being written when both its writer and a node were cut
off."""

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from attack.stage import PATIENCE_S, Broken, Server, Skipped, Stage, until
from attack.wire import FLUSH, WRITE, Client
from lab.network import Lab

BLOCK = 64 << 10
REGION_BLOCKS = 1024
"""Each writer has a region of its own, and writes its blocks in order, again and again."""
SIZE = 2 * REGION_BLOCKS * BLOCK
PORT = 10809
LEASE_S = 35.0
"""Longer than leases last."""


@dataclass(frozen=True)
class Cut:
    """A drive, and the nodes that are on the second writer's side."""

    nodes: int
    far: tuple[int, ...]
    words: tuple[str, ...]


CUTS = {
    "mirror over two nodes": Cut(2, (2,), ("--layout", "mirror")),
    "mirror, majority with the second": Cut(3, (2, 3), ("--layout", "mirror")),
    "parity, majority with the second": Cut(3, (2, 3), ("--layout", "parity")),
    "parity, majority with the first": Cut(3, (3,), ("--layout", "parity")),
}


class Writer(threading.Thread):
    """Writes and flushes blocks until one fails or it is told to end; keeps what was acknowledged."""

    def __init__(self, socket: Path, region: int):
        super().__init__(daemon=True)
        self.socket, self.region = socket, region
        self.held: dict[int, bytes] = {}
        self.unsure: int | None = None
        self.count = 0
        self.ended = threading.Event()

    def run(self) -> None:
        with contextlib.suppress(OSError, EOFError, Broken), Client(str(self.socket)) as client:
            client.go("")
            while not self.ended.is_set():
                block = self.region * REGION_BLOCKS + self.count % REGION_BLOCKS
                data = self.count.to_bytes(8, "big") * (BLOCK // 8)
                self.unsure = block
                client.request(WRITE, block * BLOCK, BLOCK, data=data)
                error = client.reply()[0]
                client.request(FLUSH, 0, 0)
                if error or client.reply()[0]:
                    return
                self.held[block], self.unsure = data, None
                self.count += 1

    def certain(self, group: int) -> dict[int, bytes]:
        """What was acknowledged, except in the group of this many blocks that was being written in the end."""
        unsure = None if self.unsure is None else self.unsure // group
        return {block: data for block, data in self.held.items() if block // group != unsure}

    def goes_on(self, blocks: int = 20) -> bool:
        """Whether it writes further blocks before it ends."""
        goal = self.count + blocks
        end = time.monotonic() + PATIENCE_S
        while self.count < goal and self.is_alive() and time.monotonic() < end:
            time.sleep(0.02)
        return self.count >= goal

    def end(self) -> None:
        """Ends it; a request that is under way must end."""
        self.ended.set()
        self.join(PATIENCE_S)
        if self.is_alive():
            raise Broken("a write does not end")


@dataclass
class Side:
    """A machine that writes: its stage, and its own copy of the drive file."""

    stage: Stage
    drive: Path
    region: int
    group: int
    """The blocks of a group of units."""

    def export(self, stack: contextlib.ExitStack, stderr: str, *more: str) -> Path:
        """Exports the drive for writing; returns the socket. The server may end with an error once it lost the drive."""
        socket = self.stage.path(".sock")
        options = ("--writable", "--unix", socket, "--prefetch", "0", "--timeout", "3")
        running = self.stage.server(stderr, "export", self.drive, *options, *more)
        running.__enter__()
        stack.callback(_end, running)
        return socket


def _end(running: contextlib.AbstractContextManager[Server]) -> None:
    with contextlib.suppress(Broken):
        running.__exit__(None, None, None)


@contextlib.contextmanager
def _network(stage: Stage, stderr: str, cut: Cut) -> Iterator[tuple[Lab, Side, Side]]:
    """A drive over nodes on machines of their own, and two more machines to write from."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        raise Skipped("network namespaces need root and iproute2")
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(Lab(nodes=cut.nodes + 1, rate=None))
        for node in lab.nodes[: cut.nodes]:
            words = ("node", "--memory", "256MiB", "--listen", f"{node.address}:{PORT}", "--insecure")
            stack.enter_context(stage.on(node.namespace).server(stderr, *words))
        group = cut.nodes - 1 if "parity" in cut.words else 1
        near = Side(stage.on(lab.examiner), stage.path(".drive"), 0, group)
        listed = ",".join(f"{node.address}:{PORT}" for node in lab.nodes[: cut.nodes])
        near.stage.must("create", near.drive, "--nodes", listed, "--size", str(SIZE), "--no-seal", *cut.words)
        far = Side(stage.on(lab.nodes[-1].namespace), stage.path(".drive"), 1, group)
        shutil.copy(near.drive, far.drive)
        yield lab, near, far


def writers(stage: Stage, stderr: str, cut: Cut, waits: bool) -> None:
    """The second writer takes the drive on its side, by force at once or after the first one's leases have ended."""
    with _network(stage, stderr, cut) as (lab, near, far):
        with contextlib.ExitStack() as stack:
            first = Writer(near.export(stack, stderr), near.region)
            first.start()
            if not first.goes_on():
                raise Broken("the first writer does not begin")
            lab.part([*cut.far, cut.nodes + 1])
            if waits:
                time.sleep(LEASE_S)
            second = _take(stack, stderr, far, () if waits else ("--force-lease",))
            near_goes_on = first.goes_on()
            first.end()
            if second:
                second.end()
        if not near_goes_on and second is None:
            raise Broken("neither side can write")
        if near_goes_on and second and len(cut.far) * 2 > cut.nodes:
            raise Broken("both sides write, although one has the majority")
        lab.rejoin()
        _settle(lab, near, far, [first] + ([second] if second else []))


def with_force(stage: Stage, stderr: str, cut: Cut) -> None:
    """The second writer takes the drive at once."""
    writers(stage, stderr, cut, waits=False)


def without_force(stage: Stage, stderr: str, cut: Cut) -> None:
    """The second writer waits until the first one's leases have ended."""
    if stage.quick:
        raise Skipped("leases last half a minute, too long for a quick run")
    writers(stage, stderr, cut, waits=True)


def _take(stack: contextlib.ExitStack, stderr: str, side: Side, force: tuple[str, ...]) -> Writer | None:
    try:
        writer = Writer(side.export(stack, stderr, *force), side.region)
    except Broken:
        return None
    writer.start()
    writer.goes_on()
    return writer


def _settle(lab: Lab, near: Side, far: Side, written: list[Writer]) -> None:
    """All that was acknowledged is there, from both sides; or both refuse, and the examiner decides."""
    refused = [side for side in (near, far) if not _compare(side, written)]
    if not refused:
        return
    if len(written) < 2 or len(refused) < 2:
        raise Broken("only one side wrote, or only one refuses to open the drive")
    kept = f"{lab.nodes[0].address}:{PORT}"
    near.stage.must("repair", near.drive, "--keep", kept)
    until(lambda: _compare(near, written[:1]), "the drive opens after the examiner has decided")


def _compare(side: Side, written: list[Writer]) -> bool:
    """Compares what was acknowledged; returns whether the drive opens. A refusal names both sides."""
    copy = side.stage.path(".raw")
    code, _, complaint = side.stage.run("save", side.drive, copy, "--partial")
    if not copy.exists():
        if "10.77.0.11" not in complaint or "10.77.0.12" not in complaint:
            raise Broken(f"the drive does not open: {complaint.strip()}")
        return False
    with copy.open("rb") as content:
        for writer in written:
            for block, data in writer.certain(side.group).items():
                content.seek(block * BLOCK)
                if content.read(BLOCK) != data:
                    why = f"; save ended with {code}" if code else ""
                    raise Broken(f"block {block} is not as was acknowledged to writer {writer.region}{why}")
    copy.unlink()
    return True


ALL = {"with force": with_force, "after the leases": without_force}
