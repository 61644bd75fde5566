"""The price of encryption: connections between members of a room beside the same in clear, and beside nbdkit's TLS."""

import concurrent.futures
import functools
import json
import os
import time
from typing import Any

from bench.harness.figures import Metric, from_rounds
from bench.harness.fio import Job
from bench.harness.process import answers, free_port
from bench.harness.rounds import interleave
from bench.parts.links import DEPTH
from bench.scratch import Scratch, write_random
from bench.settings import Settings
from bench.tools import cheetah, room
from bench.tools.endpoint import Endpoint
from cheetah.bench.figure import Figure
from cheetah.bench.process import run
from cheetah.bench.units import KIB, MIB, iec
from lab.network import Lab

OURS, CLEAR = "members of a room", "in clear"
NBDKIT = "nbdkit --tls=require, nbdcopy"
RATE, RTT, RTT_S = "1gbit", "20ms", 0.020
MEMBERS = 100
ENROLMENT_S = 10.0
SPEED = os.path.join("target", "x86_64-unknown-linux-musl", "release", "examples", "nbd_speed")

# id, what, work, block, depth, bar.
WORKLOADS = (
    ("seq-read-1m", "1 MiB sequential read, depth 16", "read", MIB, 16, 0.5),
    ("seq-write-1m", "1 MiB sequential write, depth 16", "write", MIB, 16, 0.5),
    ("rand-read-4k-qd1", "4 KiB random read, depth 1", "randread", 4 * KIB, 1, 0.85),
    ("rand-read-4k-qd32", "4 KiB random read, depth 32", "randread", 4 * KIB, 32, 0.75),
)


def speed(
    uri: str, credential: str | None, work: str, block_bytes: int, depth: int, seconds: float, enter: Any = list
) -> Any:
    """Runs the client of crates/wire/nbd/examples; returns what it measured."""
    program = os.environ.get("NBD_SPEED") or os.path.join(cheetah.ROOT, SPEED)
    if not os.path.exists(program):
        build = ["cargo", "build", "--release", "--quiet", "--target", "x86_64-unknown-linux-musl"]
        run(
            [
                *build,
                "--manifest-path",
                os.path.join(cheetah.ROOT, "Cargo.toml"),
                "-p",
                "cheetah-nbd",
                "--example",
                "nbd_speed",
            ],
            1800,
        )
    argv = [program, uri, credential or "-", work, str(block_bytes), str(depth), str(seconds)]
    return json.loads(run(enter(argv), 120))


def nbdkit(scratch: Scratch, size_bytes: int, certificates: str) -> Endpoint:
    """Starts nbdkit's memory plugin with TLS; its clients are verified, too."""
    port = free_port()
    argv = ["nbdkit", "--foreground", "--exit-with-parent", "--ipaddr=127.0.0.1", f"--port={port}", "--tls=require"]
    argv += ["--tls-verify-peer", f"--tls-certificates={certificates}", "memory", str(size_bytes)]
    process = scratch.start(NBDKIT, argv)
    process.wait_until(lambda: answers(port), "answer on its port")
    return Endpoint(NBDKIT, f"nbds://localhost:{port}?tls-certificates={certificates}", [process])


def measure_loopback(settings: Settings) -> list[Figure]:
    """Measures one node on loopback."""
    figures = []
    with Scratch() as scratch:
        pattern = write_random(os.path.join(scratch.ram_dir, "pattern"), settings.size_bytes)
        lab = room.Room.new(scratch)
        examiner, member = lab.credential("examiner", "desk"), lab.credential("node", "pc1")
        servers = {}
        for name, ours, theirs in ((OURS, examiner, member), (CLEAR, None, None)):
            ready = room.node(scratch, settings.size_bytes, theirs)
            room.make_export(ready["http"], "bench", settings.size_bytes, ours)
            uri = f"nbd{'s' if ours else ''}://{ready['nbd']}/bench"
            speed(uri, ours, "write", MIB, 16, settings.size_bytes / MIB / 1000)
            servers[name] = (uri, ours)
        # The NBD tools address the server by name.
        certificates = lab.folder("examiner", "tools")
        peer = nbdkit(scratch, settings.size_bytes, certificates)
        peer.fill(pattern)
        by_tools = servers[OURS][0].replace("127.0.0.1", "localhost") + f"?tls-certificates={certificates}"
        node = Endpoint("cheetah node, nbdcopy", by_tools, [])
        node.fill(pattern)
        print(f"tls: {iec(settings.size_bytes)} of random bytes, loopback TCP", flush=True)
        for key, what, work, block_bytes, depth, bar in WORKLOADS:
            turns: dict[str, Any] = {
                name: functools.partial(speed, uri, credential, work, block_bytes, depth, settings.runtime_s)
                for name, (uri, credential) in servers.items()
            }
            large = block_bytes >= MIB
            if large:
                ends = ("uri", "null:") if work == "read" else (pattern, "uri")
                turns[NBDKIT] = functools.partial(peer.copy, *ends, settings.size_bytes, 4)
                turns["cheetah node, nbdcopy"] = functools.partial(node.copy, *ends, settings.size_bytes, 4)
            metric, unit = ("rate", "MiB/s") if large else ("iops", "requests/s")
            results = interleave(what, settings.rounds, turns, metric)
            pair = {name: results[name] for name in (OURS, CLEAR)}
            figures += from_rounds(f"tls/{key}", what, OURS, (Metric(metric, "", unit, "higher", bar),), pair)
            if large:
                copies = {name: results[name] for name in (OURS, NBDKIT)}
                bars = (Metric("rate", "", unit, "higher", 1.5),)
                figures += from_rounds(f"tls/{key}/nbdkit", f"{what}, beside nbdkit and nbdcopy", OURS, bars, copies)
                both = {name: results[name] for name in ("cheetah node, nbdcopy", NBDKIT)}
                unbarred = (Metric("rate", "", unit, "higher"),)
                figures += from_rounds(f"tls/{key}/tools", f"nbdcopy {work}s", "cheetah node, nbdcopy", unbarred, both)
    return figures


def measure_links(settings: Settings) -> list[Figure]:
    """Measures drives over links of 1 Gbit/s, each way, in a room and in clear."""
    figures = []
    for count in (1, 4) if settings.quick else (1, 2, 4):
        size_bytes = count * (32 * MIB if settings.quick else 256 * MIB)
        with Scratch() as scratch, Lab(count, RATE) as lab:
            pattern = write_random(os.path.join(scratch.ram_dir, "pattern"), size_bytes)
            members = room.Room.new(scratch)
            examiner = members.credential("examiner", "desk")
            drives = {}
            for name, ours in ((OURS, examiner), (CLEAR, None)):
                nodes = []
                for at in lab.nodes:
                    member = members.credential("node", f"pc{at.number}") if ours else None
                    # One node in clear and one in a room on each machine, on neighbouring ports.
                    ready = room.node(
                        scratch, size_bytes // count + MIB, member, at.address, at.command, 10809 if ours else 10909
                    )
                    nodes.append(ready["nbd"])
                enter = room.acting(ours, lab.examiner.command)
                path = scratch.path("drive") + ".drive"
                argv = [
                    "create",
                    path,
                    "--nodes",
                    ",".join(nodes),
                    "--layout",
                    "stripe",
                    "--no-seal",
                    "--from",
                    pattern,
                ]
                cheetah.call(argv, enter)
                drives[name] = (path, enter)
            os.remove(pattern)
            plural = "node" if count == 1 else "nodes"
            for rw in ("read", "write"):
                turns = {
                    name: functools.partial(through_export, scratch, drive, rw, size_bytes)
                    for name, drive in drives.items()
                }
                what = f"{count} {plural} behind {RATE}: sequential {rw}"
                results = interleave(what, settings.rounds, turns)
                metric = Metric("rate", "", "MiB/s", "higher", 0.97)
                figures += from_rounds(f"tls/links-{rw}-{count}", what, OURS, (metric,), results)
    return figures


def through_export(scratch: Scratch, drive: Any, rw: str, size_bytes: int) -> Any:
    """Returns MiB/s of one pass over a drive through a fresh export on a Unix socket."""
    path, enter = drive
    with scratch.child() as turn:
        server = cheetah.export(turn, path, writable=rw == "write", tcp=False, enter=enter)
        return server.measure(Job(rw, MIB, size_bytes, DEPTH))


def measure_first_byte(settings: Settings) -> list[Figure]:
    """Measures the time from connecting to the first byte of an agent's source 20 ms away, in round trips."""
    with Scratch() as scratch, Lab(1, RATE, RTT) as lab:
        image = write_random(os.path.join(scratch.ram_dir, "image"), 16 * MIB)
        members = room.Room.new(scratch)
        examiner, member = members.credential("examiner", "desk"), members.credential("agent", "suspect")
        at, turns = lab.nodes[0], {}
        for name, ours, port in ((OURS, examiner, 10809), (CLEAR, None, 10909)):
            argv = [
                "serve",
                image,
                "--listen",
                f"{at.address}:{port}",
                *(["--room", member] if ours else ["--insecure"]),
            ]
            cheetah.serve(scratch, "cheetah serve", argv, at.command)
            uri = f"nbd{'s' if ours else ''}://{at.address}:{port}/"
            turns[name] = functools.partial(speed, uri, ours, "first", 4 * KIB, 1, 1, lab.examiner.command)
        results = interleave("first byte", settings.rounds, turns, ("first_s", "again_s"))
    figures = []
    for key, what, more in (
        ("first_s", "first byte of a source 20 ms away", 2),
        ("again_s", "the same, session resumed", 1),
    ):
        trips = {name: [result[key] / RTT_S for result in rounds] for name, rounds in results.items()}
        samples = {OURS: trips[OURS], f"{CLEAR} + {more}": [value + more for value in trips[CLEAR]]}
        figures.append(Figure(f"tls/{key}", what, "round trips", OURS, samples, "lower", 1.0))
    return figures


def enrol(scratch: Scratch, members: room.Room, count: int) -> dict[str, Any]:
    """Lets machines join at once, each a process with its own configuration; returns the seconds."""
    invitation = cheetah.call(["room", "invite", "--no-serve", "--role", "node", "--uses", str(count)], members.within)
    directories = [scratch.make_dir("machine") for _ in range(count)]

    def join(directory: str) -> None:
        name = os.path.basename(directory).replace("_", "-")
        argv = [cheetah.binary(), "--json", "room", "join", invitation["invitation"], "--name", name]
        run(["env", "-u", "CHEETAH_ROOM", f"XDG_CONFIG_HOME={directory}", *argv])

    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        list(pool.map(join, directories))
    return {"seconds": time.monotonic() - start}


def measure_enrolment(settings: Settings) -> list[Figure]:
    """Measures how long a hundred machines take to join."""
    with Scratch() as scratch:
        members = room.Room.new(scratch)
        argv = ["room", "serve", "--listen", "127.0.0.1:0"]
        cheetah.serve(scratch, "cheetah room serve", argv, members.within)
        count = 10 if settings.quick else MEMBERS
        results = interleave(
            "enrolment", settings.rounds, {OURS: functools.partial(enrol, scratch, members, count)}, "seconds"
        )
    samples = {OURS: [result["seconds"] for result in results[OURS]]}
    samples["allowed"] = [ENROLMENT_S] * len(samples[OURS])
    return [Figure("tls/enrolment", f"{count} machines join", "s", OURS, samples, "lower", 1.0)]


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures."""
    return [
        *measure_loopback(settings),
        *measure_links(settings),
        *measure_first_byte(settings),
        *measure_enrolment(settings),
    ]
