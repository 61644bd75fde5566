"""Large drives: growth from one node to eight, and the largest drive that this machine holds."""

import functools
import time
from collections.abc import Sequence

from bench.harness.cases import chosen
from bench.harness.figures import Metric, from_rounds
from bench.harness.fio import Job
from bench.harness.rounds import interleave
from bench.parts.storage import wait_for_memory
from bench.scratch import Scratch
from bench.settings import Settings
from bench.tools import cheetah
from cheetah.bench import verbs
from cheetah.bench.figure import Figure
from cheetah.bench.storage.targets import memory
from cheetah.bench.units import GIB, MIB, iec
from lab.network import EXAMINER_ADDRESS, Lab

KEY = "large"
GROWTH, LARGEST = "growth", "largest"
CASES = (GROWTH, LARGEST)
RATE, RTT = "1gbit", "0.2ms"
NODES, QUICK_NODES = 8, 3
# So much that no fewer nodes hold the drive, although each lends a little more than its share.
SHARE_BYTES = 600 * MIB
PORT = 10811
BY_ENLARGE, BY_GATHER, AT_ONCE = (
    "enlarge, node after node",
    "gather, as nodes start and join",
    "create over all at once",
)
OURS = "a drive in memory"
LARGEST_NODES = 4
# What the tools, the kernel and the lab keep.
KEPT_BYTES = 3 * GIB
DEPTH = 16
LIMIT_S = 1800


def largest_bytes(available_bytes: int) -> int:
    """Returns the content that nodes of this machine hold together, when that much memory is available."""
    each = (available_bytes - KEPT_BYTES) // LARGEST_NODES
    # Backwards from what a node lends for its content.
    return (each - verbs.MARGIN_BYTES) * 64 // 65 // MIB * MIB * LARGEST_NODES


def _created(scratch: Scratch, lab: Lab, nodes: Sequence[verbs.Node], size_bytes: int) -> str:
    """Creates a linear drive, as a drive that grows is; returns its file's path."""
    path = scratch.path("drive") + ".drive"
    argv = ["create", path, "--nodes", ",".join(node.nbd for node in nodes), "--layout", "linear", "--no-seal"]
    cheetah.call([*argv, "--size", iec(size_bytes)], lab.examiner.command)
    return path


def _destroy(lab: Lab, drive: str) -> None:
    cheetah.call(["destroy", drive], lab.examiner.command)


def _nodes(scratch: Scratch, lab: Lab) -> list[verbs.Node]:
    """Starts a node on each machine, and waits until the memory of all is there."""
    nodes = [cheetah.node(scratch, SHARE_BYTES, one.address, one.command) for one in lab.nodes]
    for node in nodes:
        wait_for_memory(lab, node)
    return [*nodes]


def at_once(lab: Lab) -> dict[str, float]:
    """Creates a drive over all nodes; returns the seconds."""
    with Scratch() as turn:
        nodes = _nodes(turn, lab)
        started = time.monotonic()
        drive = _created(turn, lab, nodes, SHARE_BYTES * len(nodes))
        took_s = time.monotonic() - started
        _destroy(lab, drive)
        return {"seconds": took_s}


def enlarged(lab: Lab) -> dict[str, float]:
    """Creates a drive over one node and adds the others one by one; returns the seconds in which it grows, and those of
    the longest step."""
    with Scratch() as turn:
        first, *others = _nodes(turn, lab)
        drive = _created(turn, lab, [first], SHARE_BYTES)
        steps_s = []
        for node in others:
            started = time.monotonic()
            argv = ["enlarge", drive, "--nodes", node.nbd, "--size", iec(SHARE_BYTES)]
            cheetah.call(argv, lab.examiner.command)
            steps_s.append(time.monotonic() - started)
        _destroy(lab, drive)
        return {"seconds": sum(steps_s), "longest": max(steps_s)}


def gathered(lab: Lab) -> dict[str, float]:
    """Lets a drive gather nodes, which are started one after the other, as in the thesis; returns the seconds from the
    first start until it has its size."""
    with Scratch() as turn:
        drive, size_bytes = turn.path("drive") + ".drive", SHARE_BYTES * len(lab.nodes)
        argv = [cheetah.binary(), "--json", "create", drive, f"--gather={EXAMINER_ADDRESS}:{PORT}"]
        argv += ["--size", iec(size_bytes), "--no-seal"]
        gathering = turn.start("cheetah create --gather", lab.examiner.command(argv))
        gathering.wait_until(lambda: "gathering" in gathering.printed(), "word that it gathers")
        started = time.monotonic()
        for one in lab.nodes:
            join = ("--join", f"{EXAMINER_ADDRESS}:{PORT}")
            cheetah.node(turn, SHARE_BYTES, one.address, one.command, join)
        gathering.wait_end(LIMIT_S)
        took_s = time.monotonic() - started
        _destroy(lab, drive)
        return {"seconds": took_s}


def growth(settings: Settings) -> list[Figure]:
    """Measures how soon a drive over one node is one over all. Each way has new nodes."""
    count = QUICK_NODES if settings.quick else NODES
    with Lab(count, RATE, RTT) as lab:
        ways = {BY_ENLARGE: enlarged, BY_GATHER: gathered, AT_ONCE: at_once}
        turns = {name: functools.partial(way, lab) for name, way in ways.items()}
        what = f"from 1 to {count} nodes"
        results = interleave(what, settings.rounds, turns, "seconds")
    metrics = (Metric("seconds", "", "s", "lower"), Metric("longest", "the longest step", "s", "lower"))
    return from_rounds(f"{KEY}/{GROWTH}", what, None, metrics, results)


def written(size_bytes: int) -> dict[str, float]:
    """Creates a drive of this size over nodes of this machine, writes all of it, reads all of it, and compares; returns
    its size, its share of the machine's memory, and the rate of both passes."""
    with Scratch() as turn:
        nodes = [cheetah.node(turn, size_bytes // LARGEST_NODES) for _ in range(LARGEST_NODES)]
        for node in nodes:
            node.wait_for_memory()
        drive = cheetah.create(turn, nodes, size_bytes)
        server = cheetah.export(turn, drive, writable=True)
        verify = ("--verify=crc32c", "--do_verify=1", "--verify_fatal=1", "--verify_state_save=0")
        started = time.monotonic()
        result = server.run(Job("write", MIB, size_bytes, DEPTH, extra=verify))
        took_s = time.monotonic() - started
        return {"size": size_bytes / GIB, "requests": result.requests, "rate": 2 * size_bytes / MIB / took_s}


def largest(settings: Settings) -> list[Figure]:
    """Measures the largest drive."""
    size_bytes = 256 * MIB if settings.quick else largest_bytes(memory.available())
    what = f"the largest drive of this machine, over {LARGEST_NODES} nodes, written and compared"
    results = interleave(what, settings.rounds, {OURS: functools.partial(written, size_bytes)}, ("size", "rate"))
    metrics = (Metric("size", "its size", "GiB"), Metric("rate", "writing, and reading with comparison", "MiB/s"))
    return from_rounds(f"{KEY}/{LARGEST}", what, OURS, metrics, results)


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures."""
    measured = {GROWTH: growth, LARGEST: largest}
    return [figure for case in chosen(CASES, settings) for figure in measured[case](settings)]
