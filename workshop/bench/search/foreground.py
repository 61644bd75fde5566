"""What a search at a node costs the owner of the machine: a foreground job beside a node that scans when idle."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Sequence

from bench.harness.figures import Metric, from_rounds
from bench.harness.rounds import interleave
from bench.scratch import Scratch
from bench.search import evidence
from bench.search.evidence import Evidence
from bench.settings import Settings
from bench.tools import cheetah
from bench.tools.cheetah import Node
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.process import Process
from cheetah.bench.units import iec

BESIDE, ALONE = "beside a search", "alone"
BAR = 1.05
HASHING = "import hashlib, sys\npiece = bytes(1 << 20)\nfor _ in range(int(sys.argv[1])): hashlib.sha256(piece)"
# The MiB that a process hashes: some seconds. Nodes that are busy for a minute are given up, so it must take less.
AMOUNT_MIB, AMOUNT_MIB_QUICK = 5000, 500
# A search that ends is followed by another, until the shell ends.
AGAIN = 'while setpriv --pdeathsig TERM "$@"; do :; done'


def hash_on(scratch: Scratch, processors: Sequence[int], amount_mib: int) -> float:
    """Returns the seconds until a process on each of these processors has hashed this amount."""
    argv = [sys.executable, "-S", "-c", HASHING, str(amount_mib)]
    begun = time.perf_counter()
    jobs = [scratch.start("hashing", ["taskset", "-c", str(processor), *argv]) for processor in processors]
    for job in jobs:
        job.wait_end()
    return time.perf_counter() - begun


def searching(scratch: Scratch, node: Node, drive: str, words: str) -> Process:
    """Has the node search the drive, again and again; returns the process once it has a job."""
    argv = [cheetah.binary(), "search", drive, words, "--at-nodes"]
    search = scratch.start("cheetah search", ["sh", "-c", AGAIN, "search", *argv])
    search.wait_until(lambda: node.ask("/v1/status")["scan"]["jobs"], "job at the node")
    return search


def hashed(found: Evidence, processors: Sequence[int], amount_mib: int, beside: bool) -> dict[str, float]:
    """Returns the seconds of the job, alone or while the node searches. Each turn has a node of its own: after a job, a node
    that gives way lets its threads wait for many seconds."""
    with Scratch() as turn:
        node = cheetah.node(turn, found.size_bytes, options=("--scan", "idle"))
        drive = turn.path("drive") + ".drive"
        argv = ["create", drive, "--nodes", node.nbd, "--layout", "stripe", "--no-seal", "--hash", "none"]
        cheetah.call([*argv, "--from", found.path])
        node.wait_for_memory()
        search = searching(turn, node, drive, found.many) if beside else None
        seconds = hash_on(turn, processors, amount_mib)
        if search and search.has_ended:
            raise BenchError(f"a search beside the foreground job failed: {search.last_words()}")
        return {"seconds": seconds}


def measure(settings: Settings) -> list[Figure]:
    """Measures a job on one processor, and one on each, while nothing searches and while the node does."""
    amount_mib = AMOUNT_MIB_QUICK if settings.quick else AMOUNT_MIB
    processors = sorted(os.sched_getaffinity(0))
    figures = []
    with Scratch() as scratch:
        found = evidence.make(scratch, settings.size_bytes)
        print(f"search: a foreground job beside --scan idle, a drive of {iec(settings.size_bytes)}", flush=True)
        for key, chosen in (("one", processors[-1:]), ("all", processors)):
            where = "on one processor" if key == "one" else f"on each of {len(processors)} processors"
            what = f"a foreground job {where} of a node that searches when idle"
            turns = {
                name: functools.partial(hashed, found, chosen, amount_mib, beside)
                for name, beside in ((BESIDE, True), (ALONE, False))
            }
            results = interleave(what, settings.rounds, turns, "seconds")
            metric = Metric("seconds", "", "s", "lower", BAR)
            figures += from_rounds(f"search/foreground-{key}", what, BESIDE, (metric,), results)
    return figures
