"""Nodes that stop and die while a drive over them is read."""

import contextlib
import random
import signal
import threading
import time

from attack.stage import Broken, Stage
from attack.targets import address_of
from attack.wire import READ, Client

READERS = 4


def lost_nodes(stage: Stage, stderr: str) -> None:
    """Reads 16,000 random ranges of a drive over three nodes; two nodes are halted for a while, then one is killed. Every
    read returns the right bytes or an error."""
    with contextlib.ExitStack() as stack:
        nodes = [stack.enter_context(stage.node(stderr, "64MiB")) for _ in range(3)]
        drive = stage.drive(nodes)
        words = ("export", drive, "--listen", "127.0.0.1:0", "--timeout", "1")
        with stage.server(stderr, *words) as server:
            readers = [_Reader(stage, address_of(server.ready["uri"]), seed) for seed in range(READERS)]
            for reader in readers:
                reader.start()
            for node in nodes[:2]:
                _wait_for(readers, stage.times(100, 1_000))
                node.process.send_signal(signal.SIGSTOP)
                time.sleep(2)
                node.process.send_signal(signal.SIGCONT)
            _wait_for(readers, stage.times(100, 1_000))
            nodes[2].process.kill()
            nodes[2].process.wait()
            for reader in readers:
                reader.join()
                if reader.wrong:
                    raise Broken(reader.wrong)
            server.check()
        if not sum(reader.errors for reader in readers):
            raise Broken("a node is dead, and no read fails")


class _Reader(threading.Thread):
    def __init__(self, stage: Stage, address: str, seed: int):
        super().__init__(daemon=True)
        self.content, self.address, self.seed = stage.content, address, seed
        self.count = stage.times(400, 4_000)
        self.done = self.errors = 0
        self.wrong = ""

    def run(self) -> None:
        try:
            with Client(self.address) as client:
                client.go("")
                self._read(client)
        except (OSError, EOFError, Broken) as error:
            self.wrong = f"a reader's connection ended: {error!r}"

    def _read(self, client: Client) -> None:
        chance = random.Random(self.seed)
        # Each read of the dead node's part costs no more than its time-out, once: it is known to be lost then.
        for _ in range(self.count):
            length = chance.randrange(1, 200_000)
            offset = chance.randrange(len(self.content) - length)
            client.request(READ, offset, length)
            error, data = client.reply(length)
            if error:
                self.errors += 1
            elif data != self.content[offset : offset + length]:
                self.wrong = f"a read of {offset}+{length} returns wrong bytes"
                return
            self.done += 1


def _wait_for(readers: list[_Reader], done: int) -> None:
    """Waits until the readers have done this many more reads, or have ended."""
    goal = sum(reader.done for reader in readers) + done
    while sum(reader.done for reader in readers) < goal and any(reader.is_alive() for reader in readers):
        time.sleep(0.01)
