"""Read-ahead, taken apart: the thesis's, fixed sizes, the kernel's alone, none, and ours, by pattern and delay."""

import functools
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

from bench.harness.cases import chosen
from bench.harness.figures import Metric, from_rounds
from bench.harness.rounds import interleave
from bench.parts.links import drive_over
from bench.scratch import Scratch, drop_caches, write_random
from bench.settings import Settings
from bench.tools import cheetah, extend, pattern, peers
from bench.tools.endpoint import Endpoint
from cheetah.bench.figure import Figure
from cheetah.bench.units import KIB, MIB, iec
from lab.network import Lab

KEY = "read-ahead"
RATE = "1gbit"
RTTS = ("0.2ms", "1ms", "10ms")
RECORD_BYTES = 4 * KIB
PATTERNS = ("forward", "backward", "strided", "interleaved", "random")
OURS, ALONE = "ours", "ours, without the kernel's"
NONE, KERNEL, THESIS = "none", "the kernel's alone", "the thesis's, 4 to 128 KiB"
FIXED_BYTES = (KIB, 4 * KIB, 16 * KIB, 64 * KIB, 100 * KIB, 128 * KIB, 256 * KIB, MIB)
OFF = "--prefetch=0"
# A slow policy over a long link is cut off.
SECONDS_MAX = 10.0

Attach = Callable[[Scratch, Lab, str, str], str]


def case(pattern_name: str, rtt: str) -> str:
    """Returns the name of a pattern at a delay."""
    return f"{pattern_name}, {rtt} of round trip"


def fixed(size_bytes: int) -> str:
    """Returns the name of a read-ahead of one size."""
    return f"fixed {iec(size_bytes)}"


def by_server(ahead: str) -> Attach:
    """Attaches through a server on the examiner's machine that has the policy, with nbdfuse on it."""

    def attach(scratch: Scratch, lab: Lab, host: str, _: str) -> str:
        address, _, port = host.rpartition(":")
        socket = scratch.path("socket")
        argv = [sys.executable, "-S", extend.__file__, address, port, socket, ahead, "0"]
        server = scratch.start("extend.py", lab.examiner.command(argv))
        server.wait_until(lambda: "ready" in server.printed(), "word that it is ready")
        behind = Endpoint("extend.py", f"nbd+unix:///?socket={socket}", [server])
        return str(peers.nbdfuse(scratch, behind, lab.examiner.command, 1)[1])

    return attach


def by_mount(*options: str) -> Attach:
    """Attaches through our mount of the drive."""

    def attach(scratch: Scratch, lab: Lab, _: str, drive: str) -> str:
        directory = scratch.make_dir("mount")
        argv = ["mount", drive, directory, *options]
        ready = cheetah.serve(scratch, "cheetah mount", argv, lab.examiner.command)[1]
        return os.path.join(directory, os.path.basename(ready["file"]))

    return attach


def policies(quick: bool) -> dict[str, tuple[Attach, str]]:
    """Returns how each policy attaches, and the advice to the kernel: only its own policy lets it read ahead."""
    sizes = FIXED_BYTES[::4] if quick else FIXED_BYTES
    return {
        NONE: (by_server("0"), "random"),
        KERNEL: (by_mount(OFF), "none"),
        **{fixed(size): (by_server(str(size)), "random") for size in sizes},
        THESIS: (by_server(f"{4 * KIB}-{128 * KIB}"), "random"),
        ALONE: (by_mount(), "random"),
        OURS: (by_mount(), "none"),
    }


def one_turn(lab: Lab, host: str, drive: str, name: str, size_bytes: int, how: tuple[Attach, str]) -> dict[str, float]:
    """Attaches afresh, and reads the pattern from cold caches."""
    attach, advice = how
    with Scratch() as turn:
        path = attach(turn, lab, host, drive)
        drop_caches()
        return {"rate": pattern.read(path, name, RECORD_BYTES, size_bytes, SECONDS_MAX, advice)}


def measure_delay(rtt: str, wanted: Sequence[str], settings: Settings) -> list[Figure]:
    """Measures every policy with the wanted patterns at one delay. A linear drive over one node has its export's bytes in
    order, so that the server with the policy can stand before the same node."""
    patterns = [name for name in PATTERNS if case(name, rtt) in wanted]
    if not patterns:
        return []
    size_bytes = 16 * MIB if settings.quick else 256 * MIB
    figures: list[Figure] = []
    with Scratch() as scratch, Lab(1, RATE, rtt) as lab:
        image = write_random(os.path.join(scratch.ram_dir, "content"), size_bytes)
        drive = drive_over(scratch, lab, size_bytes, image)
        node = lab.nodes[0]
        argv = ["nbdkit", "--foreground", f"--ipaddr={node.address}", "--port=10900", "--readonly", "file", image]
        scratch.start("nbdkit file", node.command(argv))
        for name in patterns:
            turns = {
                policy: functools.partial(one_turn, lab, f"{node.address}:10900", drive, name, size_bytes, how)
                for policy, how in policies(settings.quick).items()
            }
            results = interleave(f"read-ahead: {case(name, rtt)}", settings.rounds, turns)
            figures += figures_of(rtt, name, results)
    return figures


def figures_of(rtt: str, pattern_name: str, results: Mapping[str, Sequence[Mapping[str, float]]]) -> Iterator[Figure]:
    """Yields a figure for each of our two ways beside all policies that are not ours."""
    what = case(pattern_name, rtt)
    for key, ours, other in (("both", OURS, ALONE), ("alone", ALONE, OURS)):
        beside = {name: rounds for name, rounds in results.items() if name != other}
        said = what if ours == OURS else f"{what}, without the kernel's read-ahead"
        metric = (Metric("rate", "", "MiB/s"),)
        yield from from_rounds(f"{KEY}/{rtt}/{pattern_name}/{key}", said, ours, metric, beside)


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures."""
    rtts = RTTS[:1] if settings.quick else RTTS
    wanted = chosen([case(name, rtt) for rtt in rtts for name in PATTERNS], settings)
    return [figure for rtt in rtts for figure in measure_delay(rtt, wanted, settings)]
