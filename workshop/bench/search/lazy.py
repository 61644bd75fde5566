"""The first hit in a lazy drive that fills over a slow link: how long after its bytes have arrived it is shown."""

from __future__ import annotations

import contextlib
import json
import os
import time

from bench.harness.rounds import interleave
from bench.scratch import Scratch, write_random
from bench.search.runs import received_bytes
from bench.settings import Settings
from bench.tools import cheetah
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.units import GIB, MIB, iec
from lab.network import Lab

RATE = "100mbit"
WORD = "verschlusssache"
ALLOWED_S = 2.0
OURS = "cheetah search of a lazy drive"
# The interval at which the counters are read.
LOOK_S = 0.02
LIMIT_S = 600.0


def hits(printed: str) -> list[int]:
    """Returns the offsets of the hits that a search has printed so far."""
    found = []
    for line in printed.splitlines():
        # Progress is text, and the last line may not be whole yet.
        with contextlib.suppress(ValueError):
            said = json.loads(line)
            if isinstance(said, dict) and said.get("event") == "hit":
                found.append(said["offset"])
    return found


def first_hit(scratch: Scratch, lab: Lab, agent: str, size_bytes: int, offset: int) -> dict[str, float]:
    """Searches a drive that is empty when the search begins. Returns the seconds from the arrival of the bytes of the word to the
    hit. Every byte that the examiner's machine receives counts, so that the arrival is rather too early than too late."""
    with scratch.child() as turn:
        enter = lab.examiner.command
        node = cheetah.node(turn, size_bytes, lab.examiner_address, enter)
        drive = turn.path("drive") + ".drive"
        cheetah.call(["create", drive, "--nodes", node.nbd, "--from", agent, "--lazy", "--no-seal"], enter)
        before = received_bytes(enter)
        argv = ["search", drive, "--word", WORD, "--encoding", "utf-8"]
        begun = time.perf_counter()
        search = turn.start(OURS, enter([cheetah.binary(), "--json", *argv]))
        arrived = None
        while not (found := hits(search.printed())):
            now = time.perf_counter()
            if arrived is None and received_bytes(enter) - before >= offset + len(WORD):
                arrived = now
            if search.has_ended or now > begun + LIMIT_S:
                raise BenchError(f"{OURS}: no hit: {search.last_words()}")
            time.sleep(LOOK_S)
        shown = time.perf_counter()
        if found[0] != offset:
            raise BenchError(f"{OURS}: the first hit is at {found[0]}, not at {offset}")
        if received_bytes(enter) - before >= size_bytes:
            raise BenchError(f"{OURS}: the drive was full before the first hit was shown")
        if arrived is None:
            raise BenchError(
                f"{OURS}: the hit was shown before its bytes arrived: fewer bytes cross the link than expected"
            )
        return {"after": shown - arrived, "first": shown - begun}


def measure(settings: Settings) -> list[Figure]:
    """Searches a drive while it fills from an agent."""
    # Noise, which the agent cannot compress: what crosses the link is what the drive has.
    size_bytes = 64 * MIB if settings.quick else GIB // 4
    offset = size_bytes // 2 - 4
    with Scratch() as scratch, Lab(1, RATE) as lab:
        path = write_random(os.path.join(scratch.ram_dir, "evidence.raw"), size_bytes)
        with open(path, "r+b") as file:
            os.pwrite(file.fileno(), WORD.encode(), offset)
        source = lab.nodes[0]
        address = f"{source.address}:10809"
        cheetah.agent(scratch, path, address, source.command)
        print(f"search: a lazy drive of {iec(size_bytes)} that fills at {RATE}", flush=True)
        what = f"first hit of a lazy drive that fills at {RATE}, after its bytes are there"
        turns = {OURS: lambda: first_hit(scratch, lab, f"nbd://{address}/", size_bytes, offset)}
        results = interleave(what, settings.rounds, turns, ("after", "first"))
    after = [one["after"] for one in results[OURS]]
    samples = {OURS: after, "allowed": [ALLOWED_S] * len(after)}
    return [Figure("search/lazy", what, "s", OURS, samples, "lower", 1.0)]
