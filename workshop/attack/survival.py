"""Redundant drives in use while their nodes, links, memory and writers fail. Every byte is compared."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from attack.links import HOST, Link
from attack.stage import PATIENCE_S, Broken, Server, Stage, until
from attack.wire import FLUSH, READ, WRITE, Client

MIB = 1 << 20
SIZE = 24 * MIB
"""The drive's size: the first half belongs to workers, the second to fio."""
WORKERS = 2
LEASE_S = 35
"""Longer than leases last."""


@dataclass(frozen=True)
class Layout:
    """A layout over nodes, and the number of nodes that may be lost at once."""

    nodes: int
    losses: int
    words: tuple[str, ...]


LAYOUTS = {
    "mirror": Layout(3, 1, ("--layout", "mirror")),
    "parity": Layout(3, 1, ("--layout", "parity")),
    "three copies": Layout(4, 2, ("--layout", "mirror", "--copies", "3")),
    "two parities": Layout(5, 2, ("--layout", "parity", "--parity", "2")),
}


@dataclass
class Machine:
    """A node behind a link."""

    stage: Stage
    stderr: str
    room: tuple[str, ...]
    stack: contextlib.ExitStack
    server: Server = field(init=False)
    link: Link = field(init=False)
    port: int = field(init=False)

    def __post_init__(self) -> None:
        self._start("127.0.0.1:0")
        self.port = int(self.server.ready["nbd"].rpartition(":")[2])
        self.link = self.stack.enter_context(Link(self.port, self.port + 1))

    def _start(self, listen: str) -> None:
        words = ("node", "--memory", "64MiB", "--listen", listen, *self.room)
        self.server = self.stack.enter_context(self.stage.server(self.stderr, *words))

    @property
    def address(self) -> str:
        """Its address behind the link."""
        return f"{HOST}:{self.port}"

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to its process."""
        self.server.process.send_signal(number)

    def restart(self) -> None:
        """Kills it; it comes back empty."""
        self.server.process.kill()
        self.server.process.wait()
        self._start(f"127.0.0.1:{self.port}")

    def flip_bits(self, chance: random.Random, count: int) -> int:
        """Flips bits in used pages of the lent memory; returns the number of flips."""
        pid = self.server.process.pid
        sizes = []
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            words = line.split()
            start, end = (int(part, 16) for part in words[0].split("-"))
            if words[1].startswith("rw") and len(words) == 5:
                sizes.append((end - start, start))
        length, start = max(sizes)
        flipped = 0
        with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
            for _ in range(100 * count):
                at = start + chance.randrange(length // 4096) * 4096
                memory.seek(at)
                page = bytearray(memory.read(4096))
                if any(page) and flipped < count:
                    byte = chance.randrange(4096)
                    memory.seek(at + byte)
                    memory.write(bytes([page[byte] ^ 1 << chance.randrange(8)]))
                    flipped += 1
        return flipped


class Worker(threading.Thread):
    """Writes a part of the drive, and reads it back over two exports: the writer's, and that of a reader elsewhere."""

    def __init__(self, writer: Path, reader: Path | None, first: int, content: bytes, seed: int):
        super().__init__(daemon=True)
        self.addresses = [str(writer)] + ([str(reader)] if reader else [])
        self.first, self.content = first, bytearray(content)
        self.chance = random.Random(seed)
        self.ended = threading.Event()
        self.done = 0
        self.wrong = ""

    def run(self) -> None:
        try:
            with contextlib.ExitStack() as stack:
                clients = [stack.enter_context(Client(address)) for address in self.addresses]
                for client in clients:
                    client.go("")
                while not self.ended.is_set() and not self.wrong:
                    self._write(clients[0])
                    for client, who in zip(clients, ("the writer", "a reader elsewhere"), strict=False):
                        self._compare(client, who)
                    self.done += 1
        except (OSError, EOFError, Broken) as error:
            self.wrong = f"after {self.done} writes: {error!r}"

    def _range(self) -> tuple[int, int]:
        length = self.chance.randrange(1, 100_000)
        return self.chance.randrange(len(self.content) - length), length

    def _write(self, client: Client) -> None:
        at, length = self._range()
        data = self.chance.randbytes(length)
        if error := write(client, self.first + at, data):
            raise Broken(f"a write of {self.first + at}+{length} fails with {error}")
        self.content[at : at + length] = data

    def _compare(self, client: Client, who: str) -> None:
        at, length = self._range()
        client.request(READ, self.first + at, length)
        error, data = client.reply(length)
        if error or data != self.content[at : at + length]:
            wrong = f"fails with {error}" if error else "returns wrong bytes"
            self.wrong = f"a read of {self.first + at}+{length} by {who} {wrong}"

    def check(self) -> None:
        """Nothing may have gone wrong."""
        if self.wrong:
            raise Broken(self.wrong)


def write(client: Client, offset: int, data: bytes) -> int:
    """Writes, and returns the error."""
    client.request(WRITE, offset, len(data), data=data)
    return client.reply()[0]


@dataclass
class Drive:
    """A drive over nodes behind links, and its exports."""

    stage: Stage
    stderr: str
    machines: list[Machine]
    path: Path
    losses: int

    def some(self, first: int) -> list[Machine]:
        """As many machines as may be lost at once."""
        return [self.machines[(first + number) % len(self.machines)] for number in range(self.losses)]

    def export(self, stack: contextlib.ExitStack, *more: str) -> tuple[Server, Path]:
        """Exports it at a Unix socket."""
        socket = self.stage.path(".sock")
        words: tuple[str | Path, ...] = (
            "export",
            self.path,
            "--unix",
            socket,
            "--prefetch",
            "0",
            "--repair-after",
            "1",
            *more,
        )
        return stack.enter_context(self.stage.server(self.stderr, *words)), socket

    def is_whole(self) -> bool:
        """Whether the drive survives as many losses as its layout allows."""
        # An error may follow the status.
        _, out, _ = self.stage.run("--json", "status", self.path)
        status = json.loads(out.splitlines()[0]) if out else {}
        return bool(status.get("survives_losses") == status.get("survives_losses_max", -1))


@contextlib.contextmanager
def made(stage: Stage, stderr: str, layout: str, room: tuple[str, ...] = ()) -> Iterator[Drive]:
    """Makes a drive."""
    with contextlib.ExitStack() as stack:
        shape = LAYOUTS[layout]
        machines = [Machine(stage, stderr, room, stack) for _ in range(shape.nodes)]
        path = stage.path(".drive")
        names = ",".join(machine.address for machine in machines)
        stage.must("create", path, "--nodes", names, "--size", str(SIZE), *shape.words)
        yield Drive(stage, stderr, machines, path, shape.losses)


@contextlib.contextmanager
def in_use(drive: Drive, seconds: int, held: list[bytes] | None = None) -> Iterator[tuple[Server, list[Worker]]]:
    """The drive with a writer, a reader elsewhere, workers on both, and fio. None of them may see an error or a wrong byte."""
    with contextlib.ExitStack() as stack:
        writer, at = drive.export(stack, "--writable")
        _, elsewhere = drive.export(stack)
        part = SIZE // 2 // WORKERS
        held = held or [bytes(part)] * WORKERS
        workers = [Worker(at, elsewhere, index * part, held[index], index) for index in range(WORKERS)]
        fio = _fio(drive.stage, at, seconds)
        if fio:
            stack.callback(_kill, fio)
        for worker in workers:
            worker.start()
        yield writer, workers
        for worker in workers:
            worker.ended.set()
            worker.join(PATIENCE_S)
            if worker.is_alive():
                raise Broken("a request does not end")
            worker.check()
        if fio:
            said, _ = fio.communicate(timeout=seconds + PATIENCE_S)
            if fio.returncode:
                why = [line for line in said.splitlines() if "err=" in line or "verify" in line or "error" in line]
                raise Broken(f"fio ended with {fio.returncode}: {why[:4]}")


def _fio(stage: Stage, socket: Path, seconds: int) -> "subprocess.Popen[str] | None":
    if not shutil.which("fio"):
        return None
    argv = [
        "fio", "--name=verified", "--ioengine=nbd", f"--uri=nbd+unix:///?socket={socket}", "--rw=randwrite", "--bs=4k",
        f"--offset={SIZE // 2}", f"--size={SIZE // 2}", "--iodepth=8", "--verify=crc32c", "--verify_backlog=256",
        "--verify_fatal=1", "--time_based", f"--runtime={seconds}",
    ]  # fmt: skip
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=stage.folder)


def _kill(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()


def _freeze(machine: Machine) -> None:
    machine.signal(signal.SIGSTOP)
    time.sleep(2)
    machine.signal(signal.SIGCONT)


def _hold(machine: Machine) -> None:
    machine.link.hold()
    time.sleep(2)
    machine.link.restore()


def _cut(machine: Machine) -> None:
    machine.link.cut()
    time.sleep(1)
    machine.link.restore()


def _at_once(fault: Callable[[Machine], None], machines: list[Machine]) -> None:
    with ThreadPoolExecutor(len(machines)) as pool:
        for ended in [pool.submit(fault, machine) for machine in machines]:
            ended.result()


FAULTS: dict[str, Callable[[Machine], None]] = {
    "frozen": _freeze,
    "held": _hold,
    "cut": _cut,
    "killed": Machine.restart,
}


def faults(stage: Stage, stderr: str, layout: str, room: tuple[str, ...] = ()) -> None:
    """Freezes as many nodes as may be lost at once, cuts them off in two ways, and kills them, and each time waits until the
    drive is whole again. Then stops the writer. No request fails, and no byte is wrong."""
    rounds = stage.times(1, 3)
    with made(stage, stderr, layout, room) as drive:
        with in_use(drive, rounds * 20 + stage.times(0, LEASE_S)) as (writer, workers):
            for turn in range(rounds):
                for number, (name, fault) in enumerate(FAULTS.items()):
                    _progress(workers, f"before a node is {name}")
                    _at_once(fault, drive.some(turn + number))
                    _progress(workers, f"after a node was {name}")
                    until(drive.is_whole, f"the drive is whole after a node was {name}")
                writer.process.send_signal(signal.SIGSTOP)
                time.sleep(stage.times(2, LEASE_S) if turn == 0 else 2)
                writer.process.send_signal(signal.SIGCONT)
                _progress(workers, "after the writer was stopped")
            for worker in workers:
                worker.check()
        contents = [(worker.first, bytes(worker.content)) for worker in workers]
        _compare(drive, contents)


def _progress(workers: list[Worker], when: str) -> None:
    goals = [worker.done + 5 for worker in workers]

    def is_reached() -> bool:
        for worker in workers:
            worker.check()
        return all(worker.done >= goal for worker, goal in zip(workers, goals, strict=True))

    try:
        until(is_reached, "workers continue")
    except Broken as error:
        raise Broken(f"{when}: {error}") from error


def _compare(drive: Drive, contents: list[tuple[int, bytes]], *more: str) -> None:
    """Opens the drive again, and compares its content."""
    with contextlib.ExitStack() as stack:
        _, socket = drive.export(stack, *more)
        client = stack.enter_context(Client(str(socket)))
        client.go("")
        for first, content in contents:
            if client.read(first, len(content)) != content:
                raise Broken(f"the drive holds other bytes than were written from {first} on")


def flipped_bits(stage: Stage, stderr: str, layout: str) -> None:
    """Bits of one node's memory flip under load. No byte read is wrong, and a check repairs the pages that nobody reads."""
    with made(stage, stderr, layout) as drive:
        held = None
        for turn in range(stage.times(1, 3)):
            with in_use(drive, 10, held) as (_, workers):
                _progress(workers, "before bits flip")
                if not drive.machines[turn].flip_bits(random.Random(turn), 50):
                    raise Broken("the node's memory holds nothing")
                for _ in range(stage.times(5, 20)):
                    _progress(workers, "after bits flipped")
            contents = [(worker.first, bytes(worker.content)) for worker in workers]
            held = [content for _, content in contents]
            _compare(drive, contents)
            stage.must("repair", drive.path, "--check")
            # Every node is read instead of another one.
            others = drive.some(turn + 1)
            for other in others:
                other.link.cut()
            _compare(drive, contents)
            for other in others:
                other.link.restore()


def two_writers(stage: Stage, stderr: str, layout: str) -> None:
    """A second writer takes the drive from the first, which is writing; then from one that is stopped for longer than its
    leases last. Acknowledged writes remain until the other writer overwrites them; the former writer fails."""
    for is_stopped in (False, True):
        if is_stopped and stage.quick:
            continue
        with made(stage, stderr, layout) as drive, contextlib.ExitStack() as stack:
            first, at = drive.export(stack, "--writable")
            workers = [Worker(at, None, index * 4 * MIB, bytes(4 * MIB), index) for index in range(2)]
            for worker in workers:
                worker.start()
            _progress(workers, "before the second writer")
            if is_stopped:
                first.process.send_signal(signal.SIGSTOP)
                time.sleep(LEASE_S)
            force = () if is_stopped else ("--force-lease",)
            with contextlib.ExitStack() as inner:
                _, there = drive.export(inner, "--writable", *force)
                client = inner.enter_context(Client(str(there)))
                client.go("")
                for at_byte in range(8 * MIB, SIZE, MIB):
                    if error := write(client, at_byte, b"\x07" * MIB):
                        raise Broken(f"a write of the second writer fails with {error}")
                client.request(FLUSH, 0, 0)
                client.reply()
            if is_stopped:
                first.process.send_signal(signal.SIGCONT)
            for worker in workers:
                worker.join(PATIENCE_S)
                if worker.is_alive():
                    raise Broken("the first writer continues beside the second")
                if "fails with" not in worker.wrong:
                    raise Broken(worker.wrong)
            with Client(str(at)) as client:
                client.go("")
                client.request(READ, 8 * MIB, 4096)
                if not client.reply(4096)[0]:
                    raise Broken("the first writer still reads")
            _compare(drive, [(8 * MIB, b"\x07" * (16 * MIB))])
            # The writer that failed exits with an error.
            first.process.kill()
            first.process.wait()


def in_a_room(stage: Stage, stderr: str, layout: str) -> None:
    """The same faults, with all connections in TLS."""
    folder = stage.path(".config")
    before = os.environ.get("XDG_CONFIG_HOME")
    os.environ["XDG_CONFIG_HOME"] = str(folder)
    try:
        stage.must("room", "init", "lab")
        with stage.server(stderr, "room", "serve", "--room", "lab", "--listen", "127.0.0.1:0"):
            made_out = json.loads(
                stage.must("--json", "room", "invite", "--no-serve", "--role", "node").splitlines()[0]
            )
            faults(stage, stderr, layout, ("--room", made_out["invitation"]))
    finally:
        if before is None:
            del os.environ["XDG_CONFIG_HOME"]
        else:
            os.environ["XDG_CONFIG_HOME"] = before


ALL: dict[str, Callable[[Stage, str, str], None]] = {
    "faults": faults,
    "faults in a room": in_a_room,
    "flipped bits": flipped_bits,
    "two writers": two_writers,
}
