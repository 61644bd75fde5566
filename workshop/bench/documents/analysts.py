"""Several analysts: 1 to 8 readers on as many clients of one drive, of one disk, and of this machine's disk."""

import os
from collections.abc import Callable, Sequence

from bench.documents import places
from bench.documents.places import DESKTOP, DRIVE, LOCAL
from bench.harness import fio
from bench.harness.cases import chosen
from bench.harness.figures import Metric, from_rounds
from bench.harness.rounds import interleave
from bench.scratch import Scratch, drop_caches, write_random
from bench.settings import Settings
from bench.tools import cheetah, peers
from bench.tools.endpoint import Endpoint
from cheetah.bench.figure import Figure
from cheetah.bench.storage.targets import disk_model
from cheetah.bench.units import GIB, MIB
from lab.network import Lab, Node

KEY = "analysts"
RATE, RTT = "1gbit", "0.2ms"
SERVERS = 4
CLIENTS = (1, 2, 4, 8)
PORT = 10900

# The path of the file on a client's machine.
Attach = Callable[[Scratch, Node], str]


def served_by_one(scratch: Scratch, server: Node, number: int, path: str) -> Attach:
    """Serves a file over NBD from one machine, which caches nothing of it; clients mount it with nbdfuse."""
    port = PORT + number
    # The cache of the server's kernel would hide its disk.
    argv = ["nbdkit", "--foreground", f"--ipaddr={server.address}", f"--port={port}", "--readonly"]
    argv += ["file", path, "cache=none", "fadvise=random"]
    process = scratch.start("nbdkit file", server.command(argv))
    endpoint = Endpoint("nbdkit file", f"nbd://{server.address}:{port}/", [process])
    return lambda turn, client: str(peers.nbdfuse(turn, endpoint, client.command, 4)[1])


def from_drive(drive: str) -> Attach:
    """Mounts the drive on a client's machine."""
    return lambda turn, client: str(cheetah.mount(turn, drive, enter=client.command)[1])


def read_at_once(attach: Attach, clients: Sequence[Node], size_bytes: int) -> dict[str, float]:
    """Lets each client read its own part, all at once, as analysts with different evidence; returns the sum in MiB/s."""
    with Scratch() as turn:
        paths = [attach(turn, client) for client in clients]
        drop_caches()
        share = size_bytes // max(CLIENTS) // MIB * MIB
        readers = []
        for number, path in enumerate(paths):
            # A single process with a job for each client, which begin together.
            readers += [f"--name=client{number}", f"--filename={path}", f"--offset={number * share}", f"--size={share}"]
        return {"rate": _rate(readers)}


def case(count: int) -> str:
    """Returns the name of a number of readers."""
    return f"{count} {'analyst' if count == 1 else 'analysts'} at once"


def _rate(jobs: Sequence[str]) -> float:
    argv = ["fio", "--output-format=json", "--ioengine=psync", "--rw=read", "--bs=1M", "--thread", *jobs]
    return fio.sum_of_jobs(argv) / MIB


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures. Each server and each client has a link of its own."""
    size_bytes = 64 * MIB if settings.quick else 2 * GIB
    counts = CLIENTS[:2] if settings.quick else CLIENTS
    wanted = chosen([case(count) for count in counts], settings)
    figures = []
    with Scratch() as scratch, Lab(SERVERS + counts[-1], RATE, RTT) as lab:
        places.model_program()
        servers, clients = lab.nodes[:SERVERS], lab.nodes[SERVERS:]
        content = write_random(os.path.join(scratch.disk_dir, "content"), size_bytes)
        nodes = [cheetah.node(scratch, size_bytes // SERVERS + MIB, one.address, one.command) for one in servers]
        drive = cheetah.create(scratch, nodes, image=content, enter=lab.examiner.command)
        model = str(disk_model.serve(scratch, places.MODELS[DESKTOP], size_bytes))
        with open(content, "rb") as source, open(model, "r+b") as target:
            while piece := source.read(MIB):
                target.write(piece)
        ways = {
            DRIVE: from_drive(drive),
            DESKTOP: served_by_one(scratch, servers[0], 0, model),
            LOCAL: served_by_one(scratch, servers[0], 1, content),
        }
        for count in (count for count in counts if case(count) in wanted):
            turns = {
                name: lambda attach=attach, count=count: read_at_once(attach, clients[:count], size_bytes)
                for name, attach in ways.items()
            }
            results = interleave(case(count), settings.rounds, turns)
            figures += from_rounds(f"{KEY}/{count}", case(count), DRIVE, (Metric("rate", "", "MiB/s"),), results)
    return figures
