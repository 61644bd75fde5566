"""Other redundant storage: QEMU's quorum driver over NBD, and a dispersed GlusterFS volume."""

import json
import os
import signal
from typing import Any

from bench.harness import fio
from bench.harness.process import answers, free_port
from bench.scratch import Scratch
from bench.tools.endpoint import Endpoint
from bench.tools.peers import nbdkit_memory
from cheetah.bench.failure import BenchError
from cheetah.bench.process import Process, run
from cheetah.bench.units import MIB
from lab.namespace import Namespace
from lab.network import Lab

QUORUM = "qemu quorum over 2 × nbdkit memory"
GLUSTER = "GlusterFS disperse 2+1"


class Quorum(Endpoint):
    """QEMU's storage daemon with the quorum driver over two NBD servers."""

    def lose_one(self) -> None:
        """Kills the server that is read first."""
        os.kill(self.processes[1].pid, signal.SIGKILL)


def quorum(scratch: Scratch, size_bytes: int, image: str) -> Quorum:
    """Starts the daemon over two servers, and writes an image into both. It reads from the first that answers."""
    copies = [nbdkit_memory(scratch, size_bytes, f"copy {number}") for number in range(2)]
    port = free_port()
    argv = ["qemu-storage-daemon", "--nbd-server", f"addr.type=inet,addr.host=127.0.0.1,addr.port={port}"]
    names = []
    for number, copy in enumerate(copies):
        names.append(f"copy{number}")
        server = {"type": "inet", "host": "127.0.0.1", "port": copy.uri.rpartition(":")[2]}
        argv += ["--blockdev", json.dumps({"driver": "nbd", "node-name": names[-1], "server": server})]
    driver = {"driver": "quorum", "node-name": "quorum", "children": names, "vote-threshold": 1}
    argv += ["--blockdev", json.dumps({**driver, "read-pattern": "fifo"})]
    argv += ["--export", "type=nbd,id=export,node-name=quorum,name=disk,writable=on"]
    process = scratch.start(QUORUM, argv)
    process.wait_until(lambda: answers(port), "answer on its port")
    endpoint = Quorum(QUORUM, f"nbd://127.0.0.1:{port}/disk", [process, *(copy.processes[0] for copy in copies)])
    endpoint.fill(image)
    return endpoint


class Gluster:
    """A file on a mounted GlusterFS volume, whose bricks are in memory. GlusterFS refuses loopback, so all of it runs on
    a machine of the lab, which it reaches by its own address there."""

    name = GLUSTER

    def __init__(self, machine: Namespace, path: str, bricks: list[str]) -> None:
        self._machine = machine
        self._path = path
        self._bricks = bricks

    def measure(self, job: fio.Job) -> dict[str, float]:
        """Runs a fio job; returns rate (MiB/s) and requests per second."""
        result = fio.directly_on_file(job, self._path, self._machine.command([]))
        return {"rate": result.bytes_per_s / MIB, "iops": result.requests_per_s, "p99": result.latency_p99_us}

    def lose_one(self) -> None:
        """Kills the process of the first brick."""
        for pid in self._machine.processes():
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
            if self._bricks[0].encode() in words and words[0].endswith(b"glusterfsd"):
                os.kill(pid, signal.SIGKILL)
                return
        raise BenchError(f"{GLUSTER}: no process serves {self._bricks[0]}")


def gluster(scratch: Scratch, _: int, image: str) -> Gluster:
    """Creates a volume of two data bricks and a redundant one, mounts it, and copies an image to it."""
    lab = scratch.enter(Lab(1, None))
    machine, address = lab.nodes[0].namespace, lab.nodes[0].address
    directory = os.path.join(scratch.ram_dir, "gluster")
    bricks = [os.path.join(directory, f"brick{number}") for number in range(3)]
    mount = os.path.join(directory, "mount")
    for path in (directory, *bricks, mount, os.path.join(directory, "work"), os.path.join(directory, "run")):
        os.mkdir(path)
    daemon = _glusterd(scratch, machine, address, directory)
    log = f"--log-file={directory}/command.log"

    def command(*words: str, check: bool = True) -> str:
        argv = ["gluster", "--mode=script", f"--glusterd-sock={directory}/socket", log, *words]
        return str(run(machine.command(argv), 120, check=check))

    daemon.wait_until(lambda: "Peers" in command("peer", "status", check=False), "answer to a command")
    places = [f"{address}:{brick}" for brick in bricks]
    command("volume", "create", "bench", "disperse", "3", "redundancy", "1", *places, "force")
    command("volume", "start", "bench")
    argv = ["glusterfs", "--no-daemon", f"--volfile-server={address}", "--volfile-id=bench", log, mount]
    client = scratch.start("glusterfs", machine.command(argv))
    scratch.at_exit(run, ["umount", "--lazy", mount], 60, False)
    client.wait_until(lambda: os.path.ismount(mount), "mount")
    path = os.path.join(mount, "disk.raw")
    run(["dd", f"if={image}", f"of={path}", "bs=1M", "conv=fsync", "status=none"], 300)
    return Gluster(machine, path, bricks)


def _glusterd(scratch: Scratch, machine: Namespace, address: str, directory: str) -> Process:
    options = {
        "working-directory": f"{directory}/work",
        "run-directory": f"{directory}/run",
        "transport-type": "socket",
        "transport.socket.bind-address": address,
        "transport.address-family": "inet",
        "transport.socket.listen-port": "24007",
        "glusterd-sockfile": f"{directory}/socket",
    }
    lines = ["volume management", "type mgmt/glusterd"]
    lines += [f"option {name} {value}" for name, value in options.items()]
    volume = os.path.join(directory, "glusterd.vol")
    with open(volume, "w", encoding="ascii") as file:
        file.write("\n".join([*lines, "end-volume", ""]))
    argv: list[Any] = ["glusterd", "--no-daemon", f"--volfile={volume}", f"--log-file={directory}/daemon.log"]
    return scratch.start("glusterd", machine.command([*argv, f"--pid-file={directory}/daemon.pid"]))
