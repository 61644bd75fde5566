"""Nodes that leave a drive: draining behind links of 1 Gbit/s, idle and while the drive is read, and how soon a machine
has the memory again that a node with `--memory auto` lent."""

import dataclasses
import os
import resource
import threading
import time

from bench.harness.fio import Job
from bench.scratch import Scratch, write_random
from bench.settings import Settings
from bench.survive.drives import MIRROR
from bench.survive.links import DEPTH, RATE, WIDE, Setup, one_pass
from bench.tools import cheetah, iperf
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.units import GIB, KIB, MIB
from lab.network import Lab

IDLE_BAR, FOREGROUND_BAR, PAUSE_MAX_MS, BACK_MAX_S, GAIN_BAR = 0.8, 0.7, 1000.0, 1.0, 1.9
# A drive that can be spread over twice its nodes.
TWO_PARTS = dataclasses.replace(MIRROR, options=(*MIRROR.options, "--parts", "2"))
ALLOWED = "allowed"
LOOK_S = 0.005


class Moves:
    """A drive over one node behind each link but the last, whose node is empty: the parts of one member move between
    two nodes."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.at, self.other = 0, WIDE.nodes

    def drain(self, drives_too: bool = True) -> float:
        """Moves the member to the other node; returns the MiB/s of its content, process start included."""
        leaves, takes = self.setup.nodes[self.at], self.setup.nodes[self.other]
        argv = ["drain", leaves.nbd, "--to", takes.nbd]
        argv += ["--drive", self.setup.drive] if drives_too else []
        enter = self.setup.lab.examiner.command
        started = time.monotonic()
        cheetah.call(argv, enter)
        took_s = time.monotonic() - started
        cheetah.call(["drain", leaves.nbd, "--undrain"], enter)
        self.at, self.other = self.other, self.at
        return self.setup.size_bytes / self.setup.layout.data_nodes / MIB / took_s


def measure_moves(setup: Setup, settings: Settings) -> list[Figure]:
    """Measures moves of a member while the drive is not used, and while it is read."""
    moves = Moves(setup)
    name = setup.layout.name
    idle: dict[str, list[float]] = {"cheetah drain": [], "iperf3": []}
    reading: dict[str, list[float]] = {"during the move": [], "undisturbed": []}
    pauses: dict[str, list[float]] = {name: [], ALLOWED: []}
    bulk = Job("read", MIB, setup.size_bytes, DEPTH, runtime_s=1)
    small = Job("randread", 4 * KIB, setup.size_bytes, 1, runtime_s=1)
    for _ in range(settings.rounds):
        # The slower of the links that the content takes.
        links = [(moves.at, True), (moves.other, False)]
        rates = [iperf.link_rate(setup.lab, setup.lab.nodes[number], towards, 1) for number, towards in links]
        idle["cheetah drain"].append(moves.drain())
        idle["iperf3"].append(min(rates))
        for job in (bulk, small):
            with setup.scratch.child() as turn:
                server = cheetah.export(turn, setup.drive, writable=True, tcp=False, enter=setup.lab.examiner.command)
                before = server.measure(job)["rate"] if job is bulk else 0.0
                moving = threading.Thread(target=moves.drain, args=(False,))
                moving.start()
                during: list[float] = []
                longest_ms = 0.0
                while moving.is_alive():
                    result = server.run(job)
                    longest_ms = max(longest_ms, result.latency_max_us / 1000)
                    if moving.is_alive() or not during:
                        during.append(result.bytes_per_s / MIB)
                moving.join()
                if job is bulk:
                    reading["undisturbed"].append(before)
                    reading["during the move"].append(sum(during) / len(during))
                else:
                    pauses[name].append(longest_ms)
                    pauses[ALLOWED].append(PAUSE_MAX_MS)
    print(f"  drain idle {idle}\n  reading {reading}\n  longest request {pauses} ms", flush=True)
    return [
        Figure(
            "survive-moves/drain",
            f"{name}: drain of a node, idle, of what the slower link carries",
            "MiB/s",
            "cheetah drain",
            idle,
            "higher",
            IDLE_BAR,
        ),
        Figure(
            "survive-moves/read-during-drain",
            f"{name}: sequential read at depth {DEPTH} during a drain",
            "MiB/s",
            "during the move",
            reading,
            "higher",
            FOREGROUND_BAR,
        ),
        Figure(
            "survive-moves/pause",
            f"{name}: longest of all 4 KiB reads, depth 1, during a drain and its end",
            "ms",
            name,
            pauses,
            "lower",
            1.0,
        ),
    ]


def resident_bytes(pid: int) -> int:
    """Returns the memory of a process."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def given_back_s(scratch: Scratch, image: str, size_bytes: int) -> float:
    """Fills a node that follows its machine, has it free the drive, and returns the seconds for each GiB until the machine has
    the memory: wiped, read back and given back."""
    argv = ["node", "--memory", "auto", "--keep-free", "64MiB", "--listen", "127.0.0.1:0"]
    process, ready = cheetah.serve(scratch, "cheetah node", argv)
    drive = scratch.path("drive") + ".drive"
    cheetah.call(["create", drive, "--nodes", ready["nbd"], "--from", image, "--hash", "none"])
    filled = resident_bytes(process.pid)
    if filled < size_bytes:
        raise BenchError(f"the node has {filled} bytes in memory, fewer than were written")
    freeing = threading.Thread(target=cheetah.call, args=(["destroy", drive],))
    started = time.monotonic()
    freeing.start()
    deadline = started + 60
    while resident_bytes(process.pid) > filled - size_bytes * 9 // 10:
        if time.monotonic() > deadline:
            raise BenchError("the node has given nothing back after a minute")
        time.sleep(LOOK_S)
    took_s = time.monotonic() - started
    freeing.join()
    return took_s * GIB / size_bytes


def measure_giving_back(settings: Settings) -> list[Figure]:
    """Measures how soon free room is back."""
    size_bytes = 128 * MIB if settings.quick else GIB
    seconds: list[float] = []
    with Scratch() as scratch:
        image = write_random(os.path.join(scratch.ram_dir, "pattern"), size_bytes)
        for _ in range(settings.rounds):
            with scratch.child() as turn:
                seconds.append(given_back_s(turn, image, size_bytes))
    print(f"  1 GiB given back in {seconds} s", flush=True)
    samples = {"cheetah node": seconds, ALLOWED: [BACK_MAX_S] * len(seconds)}
    what = "a node with --memory auto: a drive is destroyed until its machine has 1 GiB again"
    return [Figure("survive-moves/given-back", what, "s", "cheetah node", samples, "lower", 1.0)]


def measure_rebalance(settings: Settings, size_bytes: int) -> list[Figure]:
    """Measures reads of a drive over two nodes, has it spread over four, and measures them again."""
    spreading: dict[str, list[float]] = {"cheetah rebalance": [], "iperf3": []}
    reading: dict[str, list[float]] = {"four nodes": [], "two nodes": []}
    for _ in range(settings.rounds):
        with Scratch() as scratch, Lab(2 * TWO_PARTS.nodes, RATE) as lab:
            setup = Setup(scratch, lab, TWO_PARTS, size_bytes)
            further = [setup.start_node(number) for number in range(TWO_PARTS.nodes, 2 * TWO_PARTS.nodes)]
            reading["two nodes"].append(one_pass(scratch, lab, setup.drive, "read", size_bytes)["rate"])
            spreading["iperf3"].append(min(iperf.link_rate(lab, node, True, 1) for node in lab.nodes))
            names = ",".join(node.nbd for node in further)
            started = time.monotonic()
            cheetah.call(["rebalance", setup.drive, "--nodes", names], lab.examiner.command)
            # Two parts of half of the drive have moved, one after the other.
            spreading["cheetah rebalance"].append(size_bytes / MIB / (time.monotonic() - started))
            reading["four nodes"].append(one_pass(scratch, lab, setup.drive, "read", size_bytes)["rate"])
    print(f"  rebalance {spreading}\n  reading {reading}", flush=True)
    what = "mirror in two parts: rebalance from two nodes to four, idle, of what a link carries"
    gain = f"mirror in two parts: sequential read at depth {DEPTH} from four nodes, after rebalance"
    return [
        Figure("survive-moves/rebalance", what, "MiB/s", "cheetah rebalance", spreading, "higher", IDLE_BAR),
        Figure("survive-moves/rebalance-gain", gain, "MiB/s", "four nodes", reading, "higher", GAIN_BAR),
    ]


def measure(settings: Settings) -> list[Figure]:
    """Measures the part."""
    size_bytes = 256 * MIB if settings.quick else 4 * GIB
    figures = measure_giving_back(settings)
    with Scratch() as scratch, Lab(WIDE.nodes + 1, RATE) as lab:
        setup = Setup(scratch, lab, WIDE, size_bytes)
        setup.nodes.append(setup.start_node(WIDE.nodes))
        figures += measure_moves(setup, settings)
    return figures + measure_rebalance(settings, size_bytes // 2)
