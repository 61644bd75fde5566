"""An image of random bytes sent by `cat | nc`, and what receives it: `dd` with its blocks of 512 bytes, `dd bs=1M`, `cat`, or
`cheetah acquire`; from a cold cache and from a warm one; and an image larger than the memory of both ends."""

from __future__ import annotations

import functools
import itertools
from typing import Any

from bench.harness.figures import Metric
from bench.harness.rounds import interleave, while_time_lasts
from bench.images.acquired import AcquiredImage, Images
from bench.remote import disks
from bench.remote.contents import placed
from bench.report import grid
from bench.scratch import Scratch
from bench.settings import Settings
from bench.tools import control_group, transfer
from bench.tools.transfer import Pipe, TransferEnds
from cheetah.bench.figure import Figure
from cheetah.bench.units import GIB, MIB, iec
from cheetah.bench.verbs import Enter

PART = "transfer-receivers"
RATE, RTT = "1gbit", "0us"
ROUNDS_MAX = 3
SIZE_BYTES, SIZE_BYTES_QUICK = GIB, 32 * MIB
CACHES = ("cold", "warm")
LARGE_BYTES, LARGE_BYTES_QUICK = 4 * GIB, 64 * MIB
MEMORY_BYTES, MEMORY_BYTES_QUICK = GIB, 256 * MIB
SEND = "cat {image}"
RECEIVERS = (
    Pipe("nc | dd", SEND, write="dd of={target} status=none"),
    Pipe("nc | dd bs=1M iflag=fullblock", SEND, write="dd of={target} bs=1M iflag=fullblock status=none"),
    Pipe("nc | cat", SEND, write="cat >{target}"),
    Pipe("nc | tee, md5sum", SEND),
)
OURS = "cheetah acquire"
METRICS = (
    Metric("sender", "the sender is done", "s", "lower"),
    Metric("seconds", "the receiver is done", "s", "lower"),
)


def received(
    scratch: Scratch, between: Any, image: AcquiredImage, warm: bool, pipe: Pipe | None, folder: str
) -> dict[str, float]:
    """Sends the image to a receiver; ours without one."""
    image.cache(warm)
    if pipe is None:
        return dict(transfer.by_cheetah(scratch, between, "none", image, folder))
    return dict(transfer.by_pipe(scratch, between, pipe, image, folder))


def contenders(scratch: Scratch, between: Any, image: AcquiredImage, warm: bool, folder: str) -> dict[str, Any]:
    """Returns all receivers."""
    ways: dict[str, Pipe | None] = {pipe.name: pipe for pipe in RECEIVERS} | {OURS: None}
    return {
        name: functools.partial(received, scratch, between, image, warm, pipe, folder) for name, pipe in ways.items()
    }


def measure_disk(disk: str, cache: str, settings: Settings) -> list[Figure]:
    """Returns the figures of one disk at both ends, with this state of the cache."""
    rounds = min(settings.rounds, ROUNDS_MAX)
    size_bytes = SIZE_BYTES_QUICK if settings.quick else SIZE_BYTES
    note = (
        f"{iec(size_bytes)} of random bytes over 1 Gbit/s in up to {rounds} rounds, flushed at the receiver. Cold: caches dropped before each "
        "turn, as a first run has it; warm: the image is in the sender's memory, as from a second run on. `dd` and `cat` do not hash; their "
        "images are hashed afterwards."
    )
    with Scratch() as scratch, transfer.ends(scratch, RATE, RTT) as between:
        here, there = (disks.directory(scratch, disk, size_bytes) for _ in range(2))
        image = placed(Images(scratch).get("random", size_bytes), here)
        turns = contenders(scratch, between, image, cache == "warm", there)
        results = interleave(f"{disk}, {cache}", rounds, turns, ("sender", "seconds"))
    return grid.figures(PART, f"To {disk}", cache, results, METRICS, note)


def _within(group: Enter, enter: Enter) -> Enter:
    return lambda argv: group(enter(argv))


def measure_large(settings: Settings) -> list[Figure]:
    """Returns the figures of an image larger than the memory of each end, on this machine's disk."""
    rounds = min(settings.rounds, ROUNDS_MAX)
    size_bytes = LARGE_BYTES_QUICK if settings.quick else LARGE_BYTES
    memory_bytes = MEMORY_BYTES_QUICK if settings.quick else MEMORY_BYTES
    with Scratch() as scratch, transfer.ends(scratch, RATE, RTT) as between:
        with (
            control_group.limited(scratch.enter(Scratch()), memory_bytes) as sends,
            control_group.limited(scratch.enter(Scratch()), memory_bytes) as receives,
        ):
            image = Images(scratch).get("random", size_bytes)
            small = TransferEnds(
                _within(sends, between.sender),
                between.sender_address,
                _within(receives, between.receiver),
                between.receiver_address,
                between.lab,
            )
            turns = contenders(scratch, small, image, False, scratch.disk_dir)
            results = interleave(f"{iec(size_bytes)} in {iec(memory_bytes)}", rounds, turns, ("sender", "seconds"))
    note = (
        f"Larger than memory: {iec(size_bytes)} of random bytes, the processes of each end in a control group of {iec(memory_bytes)}, which "
        "counts the page cache, too."
    )
    column = f"{iec(size_bytes)}, {iec(memory_bytes)} of memory"
    return grid.figures(PART, "An image larger than memory", column, results, METRICS, note)


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures."""
    print(f"{PART}: {len(RECEIVERS) + 1} receivers", flush=True)
    pairs = itertools.product(reversed(disks.DISKS), CACHES)
    columns = [functools.partial(measure_disk, disk, cache, settings) for disk, cache in pairs]
    return while_time_lasts([*columns, functools.partial(measure_large, settings)])
