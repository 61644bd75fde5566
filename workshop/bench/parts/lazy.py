"""The first byte of a file in a drive that is being filled over a slow link, beside a direct read."""

import random
import re
from typing import Any

from bench.harness.process import timed
from bench.harness.rounds import interleave
from bench.images.acquired import Images
from bench.scratch import Scratch, drop_caches
from bench.settings import Settings
from bench.tools import cheetah, peers
from bench.tools.endpoint import Endpoint
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.process import run
from cheetah.bench.units import KIB, MIB, iec
from lab.network import Lab

RATE, RTT, RTT_S = "100mbit", "20ms", 0.020
ROUND_TRIPS_MORE = 5
FILES = 12
BLOCK_BYTES = 4 * KIB
OURS = "drive being filled, mounted"
DIRECT = "direct read (nbdfuse on the agent)"


def places(image: Any, count: int) -> Any:
    """Returns the offsets of some regular files in an ext4 image, none near its start, which is filled first."""

    def listed(directory: str, mode: str) -> Any:
        lines = run(["debugfs", "-R", f"ls -p {directory}", image.path])
        return re.findall(rf"^/(\d+)/{mode}\d+/\d+/\d+/([^/.]+)", lines, re.MULTILINE)

    offsets: list[int] = []
    # File systems spread directories, and keep a directory's files together.
    for _, name in reversed(listed("/", "04")):
        if len(offsets) >= 4 * count:
            break
        for inode, _ in listed(f"/{name}", "10")[:count]:
            blocks = run(["debugfs", "-R", f"blocks <{inode}>", image.path]).split()
            if blocks and int(blocks[0]) * BLOCK_BYTES > image.size_bytes // 4:
                offsets.append(int(blocks[0]) * BLOCK_BYTES)
    if not offsets:
        raise BenchError(f"{image.path}: no file begins in its last three quarters")
    return random.Random(1).sample(offsets, min(count, len(offsets)))


def first_bytes(path: str, offsets: Any) -> dict[str, Any]:
    """Returns the seconds for the first byte at each offset, none read before: the slowest and the median."""
    drop_caches()
    argv = ["dd", "bs=1", "count=1", "iflag=skip_bytes", "status=none", "of=/dev/null", f"if={path}"]
    seconds = sorted(timed([*argv, f"skip={offset}"]) for offset in offsets)
    return {"first": seconds[len(seconds) // 2], "slowest": seconds[-1]}


def lazily(scratch: Scratch, lab: Lab, agent: str, size_bytes: int, offsets: Any) -> dict[str, Any]:
    """Creates a drive over a node beside the examiner, mounts it, and reads at once. Adds the time it took to
    create."""
    with scratch.child() as turn:
        enter = lab.examiner.command
        node = cheetah.node(turn, size_bytes, lab.examiner_address, enter)
        drive = turn.path("drive") + ".drive"
        argv = ["create", drive, "--nodes", node.nbd, "--from", agent, "--lazy", "--no-seal"]
        made = timed(enter([cheetah.binary(), *argv]))
        _, path = cheetah.mount(turn, drive, enter=enter)
        return {"made": made, **first_bytes(path, offsets)}


def directly(scratch: Scratch, lab: Lab, agent: str, offsets: Any) -> Any:
    """Reads the same places straight from the agent."""
    with scratch.child() as turn:
        _, path = peers.nbdfuse(turn, Endpoint("cheetah serve", agent, []), lab.examiner.command)
        return first_bytes(path, offsets)


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures."""
    size_bytes = 256 * MIB if settings.quick else 512 * MIB
    with Scratch() as scratch, Lab(1, RATE, RTT) as lab:
        image = Images(scratch).get("mixed", size_bytes)
        image.cache(warm=True)
        offsets = places(image, FILES)
        node = lab.nodes[0]
        agent = f"{node.address}:10809"
        cheetah.agent(scratch, image.path, agent, node.command)
        agent = f"nbd://{agent}/"
        print(f"lazy: {len(offsets)} files in {iec(size_bytes)} over {RATE}, {RTT}; seconds a round", flush=True)
        turns = {
            OURS: lambda: lazily(scratch, lab, agent, size_bytes, offsets),
            DIRECT: lambda: directly(scratch, lab, agent, offsets),
        }
        return figures_of(interleave("first byte of a file", settings.rounds, turns, ("first", "slowest", "made")))


def figures_of(results: Any) -> list[Figure]:
    """Returns the figures in round trips, beside a direct read plus five, and the time until the drive existed."""
    figures = []
    for key, what in (("first", "first byte of a file, in the middle"), ("slowest", "first byte, the slowest file")):
        trips = {name: [result[key] / RTT_S for result in rounds] for name, rounds in results.items()}
        allowed = f"direct read + {ROUND_TRIPS_MORE}"
        samples = {OURS: trips[OURS], allowed: [value + ROUND_TRIPS_MORE for value in trips[DIRECT]]}
        figures.append(Figure(f"lazy/{key}", what, "round trips", OURS, samples, "lower", 1.0))
    made = {OURS: [result["made"] for result in results[OURS]], "allowed": [1.0] * len(results[OURS])}
    return [*figures, Figure("lazy/made", "create --lazy, until the drive is there", "s", OURS, made, "lower", 1.0)]
