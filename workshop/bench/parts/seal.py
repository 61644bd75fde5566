"""The price of a seal: a sealed drive beside the same drive unsealed, and beside nbdkit's luks filter."""

import functools
import os
from collections.abc import Callable, Mapping, Sequence

from bench.harness.figures import Metric, from_rounds
from bench.harness.fio import Job
from bench.harness.process import memory_peak_bytes
from bench.harness.rounds import interleave
from bench.parts import links
from bench.parts.drive import NODES
from bench.parts.tls import through_export
from bench.scratch import Scratch, write_random
from bench.settings import Settings
from bench.tools import cheetah, iperf, peers, room
from bench.tools.endpoint import Endpoint
from cheetah.bench.figure import Figure
from cheetah.bench.units import GIB, KIB, MIB, iec
from cheetah.bench.verbs import Enter
from lab.network import Lab

SEALED, PLAIN, SECURED = "sealed", "not sealed", "sealed, in a room"
TLS_BAR, LINKS_BAR = 0.45, 0.97
MEMORY_MIB_PER_GIB = 0.5
# So large that the memory for each GiB outweighs that of buffers.
LARGE_BYTES = 256 * GIB
# The bytes sealed as a whole, and the most memory of the nodes beyond the content, in percent.
OVERHEADS = ((4 * KIB, 0.6), (64 * KIB, 0.04))
# At depth 1, which processor the kernel wakes a thread on changes the rate by more than a seal does, and changes between
# runs, not within one. Many short runs tell the two apart.
SHORT_RUNS = 8

# id, what, pattern, block, depth, bytes sealed as a whole, bar beside the drive that is not sealed, bar beside luks.
WORKLOADS = (
    ("seq-read-1m", "1 MiB sequential read, depth 16, image", "read", MIB, 16, 64 * KIB, 0.65, 1.5),
    ("seq-write-1m", "1 MiB sequential write, depth 16, image", "write", MIB, 16, 64 * KIB, 0.65, 1.5),
    ("seq-read-1m-small", "1 MiB sequential read, depth 16, scratch drive", "read", MIB, 16, 4 * KIB, None, None),
    ("rand-read-4k-qd1", "4 KiB random read, depth 1, scratch drive", "randread", 4 * KIB, 1, 4 * KIB, 0.90, None),
    ("rand-read-4k-qd32", "4 KiB random read, depth 32, scratch drive", "randread", 4 * KIB, 32, 4 * KIB, 0.80, None),
    (
        "rand-write-4k-qd32",
        "4 KiB random write, depth 32, scratch drive",
        "randwrite",
        4 * KIB,
        32,
        4 * KIB,
        None,
        None,
    ),
    ("rand-read-4k-image", "4 KiB random read, depth 1, image", "randread", 4 * KIB, 1, 64 * KIB, None, None),
)


def with_identity(scratch: Scratch, enter: Enter = list) -> Enter:
    """Makes an identity; returns the command line that runs `argv` with it."""
    key = scratch.path("identity")
    cheetah.call(["drive", "identity", key])
    return lambda argv: enter(["env", f"CHEETAH_IDENTITY={key}", *argv])


def drive(scratch: Scratch, nodes: Sequence[str], options: Sequence[str], enter: Enter) -> tuple[str, Enter]:
    """Creates a drive striped over nodes; returns its file's path, and what its commands are run with."""
    path = scratch.path("drive") + ".drive"
    cheetah.call(["create", path, "--nodes", ",".join(nodes), "--layout", "stripe", *options], enter)
    return path, enter


def of_unit(unit_bytes: int) -> list[str]:
    """Returns the options of a sealed drive with such units."""
    return ["--seal", "--seal-unit", iec(unit_bytes).replace(" ", "")]


def drives(scratch: Scratch, pattern: str, unit_bytes: int) -> dict[str, Endpoint]:
    """Loads random bytes into a sealed drive and one that is not sealed, over the same nodes; returns their writable
    exports."""
    size_bytes = os.path.getsize(pattern)
    nodes = [cheetah.node(scratch, 2 * (size_bytes // NODES + 2 * MIB)).nbd for _ in range(NODES)]
    enter = with_identity(scratch)
    exports = {}
    for name, options in ((SEALED, of_unit(unit_bytes)), (PLAIN, ["--no-seal"])):
        path, _ = drive(scratch, nodes, [*options, "--from", pattern], enter)
        exports[name] = cheetah.export(scratch, path, writable=True, enter=enter, name=name)
    return exports


def rates(
    settings: Settings, key: str, what: str, ours: str, turns: Mapping[str, Callable[[], dict[str, float]]], bar: float
) -> list[Figure]:
    """Measures the rate of each contender in turn."""
    results = interleave(what, settings.rounds, turns)
    return from_rounds(key, what, ours, (Metric("rate", "", "MiB/s", "higher", bar),), results)


def measure_tls(settings: Settings) -> list[Figure]:
    """Measures a sealed drive over nodes of a room beside one that is not sealed over nodes in clear."""
    figures = []
    with Scratch() as scratch:
        pattern = write_random(os.path.join(scratch.ram_dir, "pattern"), settings.size_bytes)
        members = room.Room.new(scratch)
        examiner, share_bytes = members.credential("examiner", "desk"), settings.size_bytes // NODES + 2 * MIB
        served = {}
        for name, ours, options in ((SECURED, examiner, of_unit(64 * KIB)), (PLAIN, None, ["--no-seal"])):
            theirs = [members.credential("node", f"pc{n}") if ours else None for n in range(NODES)]
            nodes = [room.node(scratch, share_bytes, member)["nbd"] for member in theirs]
            served[name] = drive(scratch, nodes, [*options, "--from", pattern], room.acting(ours))
        os.remove(pattern)
        print(f"seal: {iec(settings.size_bytes)}, in a room, {NODES} nodes, loopback TCP", flush=True)
        for rw in ("read", "write"):
            turns = {
                name: functools.partial(through_export, scratch, made, rw, settings.size_bytes)
                for name, made in served.items()
            }
            what = f"1 MiB sequential {rw}, depth 16, image in a room, beside one in clear"
            figures += rates(settings, f"seal/seq-{rw}-1m/tls", what, SECURED, turns, TLS_BAR)
    return figures


def measure_links(settings: Settings) -> list[Figure]:
    """Measures sealed drives over nodes behind links of 1 Gbit/s, against iperf3 over each link."""
    figures = []
    for count in links.COUNTS:
        size_bytes = count * (32 * MIB if settings.quick else GIB // 2)
        with Scratch() as scratch, Lab(count, links.RATE) as lab:
            pattern = write_random(os.path.join(scratch.ram_dir, "pattern"), size_bytes)
            share_bytes = size_bytes // count + 2 * MIB
            nodes = [cheetah.node(scratch, share_bytes, at.address, at.command).nbd for at in lab.nodes]
            options = [*of_unit(64 * KIB), "--from", pattern]
            made = drive(scratch, nodes, options, with_identity(scratch, lab.examiner.command))
            os.remove(pattern)
            iperf.start_servers(scratch, lab)
            carried = f"{count} × iperf3"
            for rw in ("read", "write"):
                turns = {
                    SEALED: functools.partial(through_export, scratch, made, rw, size_bytes),
                    carried: functools.partial(iperf.sum_of_links, lab, rw == "read", 1 if settings.quick else 3),
                }
                what = f"{count} {'node' if count == 1 else 'nodes'} behind {links.RATE}: sequential {rw}"
                figures += rates(settings, f"seal/links-{rw}-{count}", what, SEALED, turns, LINKS_BAR)
    return figures


def measure_memory(settings: Settings) -> list[Figure]:
    """Measures how much more memory an export of a sealed drive takes, for each GiB of a large drive that holds little."""
    size_bytes, figures = LARGE_BYTES, []
    with Scratch() as scratch:
        nodes = [cheetah.node(scratch, 512 * MIB).nbd for _ in range(NODES)]
        enter = with_identity(scratch)
        size = ["--thin", "--size", iec(size_bytes)]
        made = {
            name: drive(scratch, nodes, [*options, *size], enter)[0]
            for name, options in ((SEALED, of_unit(64 * KIB)), (PLAIN, ["--no-seal"]))
        }
        for rw in ("write", "read"):
            more = []
            for _ in range(settings.rounds):
                peaks = {}
                for name, path in made.items():
                    with scratch.child() as turn:
                        server = cheetah.export(turn, path, writable=rw == "write", enter=enter, name=name)
                        server.measure(Job(rw, MIB, 256 * MIB, 16))
                        peaks[name] = memory_peak_bytes(server.processes[0])
                more.append((peaks[SEALED] - peaks[PLAIN]) / MIB / (size_bytes / GIB))
            what = f"more memory of the client for each GiB of an image, {rw}"
            print(f"  {what}: {max(more):.2f} MiB of {MEMORY_MIB_PER_GIB} allowed", flush=True)
            samples = {SEALED: more, "allowed": [MEMORY_MIB_PER_GIB] * len(more)}
            figures.append(Figure(f"seal/memory-{rw}", what, "MiB", SEALED, samples, "lower", 1.0))
    return figures


def measure_space(settings: Settings) -> list[Figure]:
    """Measures how much more memory of the nodes a sealed image takes than its bytes."""
    figures = []
    for unit_bytes, percent in OVERHEADS:
        with Scratch() as scratch:
            pattern = write_random(os.path.join(scratch.ram_dir, "pattern"), settings.size_bytes)
            nodes = [cheetah.node(scratch, settings.size_bytes // NODES + 2 * MIB) for _ in range(NODES)]
            options = [*of_unit(unit_bytes), "--from", pattern]
            drive(scratch, [node.nbd for node in nodes], options, with_identity(scratch))
            used_bytes = sum(export["used_bytes"] for node in nodes for export in node.ask("/v1/status")["exports"])
            more = 100 * (used_bytes / settings.size_bytes - 1)
            what = f"memory of the nodes beyond the content, units of {iec(unit_bytes)}"
            print(f"  {what}: {more:.3f} % of {percent} % allowed", flush=True)
            samples = {SEALED: [more], "allowed": [percent]}
            figures.append(Figure(f"seal/space-{unit_bytes // KIB}k", what, "%", SEALED, samples, "lower", 1.0))
    return figures


def measure_loopback(settings: Settings) -> list[Figure]:
    """Measures each kind of drive in turn."""
    figures = []
    for unit_bytes in (64 * KIB, 4 * KIB):
        with Scratch() as scratch:
            pattern = write_random(os.path.join(scratch.ram_dir, "pattern"), settings.size_bytes)
            servers = drives(scratch, pattern, unit_bytes)
            if unit_bytes == 64 * KIB:
                luks = peers.nbdkit_luks(scratch, settings.size_bytes)
                luks.fill(pattern)
                servers[luks.name] = luks
            os.remove(pattern)
            print(
                f"seal: {iec(settings.size_bytes)}, units of {iec(unit_bytes)}, {NODES} nodes, loopback TCP", flush=True
            )
            for key, what, rw, block_bytes, depth, unit, plain_bar, luks_bar in WORKLOADS:
                if unit != unit_bytes:
                    continue
                runs = SHORT_RUNS if depth == 1 and not settings.quick else 1
                job = Job(rw, block_bytes, settings.size_bytes, depth, runtime_s=settings.runtime_s / min(runs, 4))
                turns = {name: lambda server=server, job=job: server.measure(job) for name, server in servers.items()}
                metric, of = ("rate", "MiB/s") if block_bytes >= MIB else ("iops", "requests/s")
                results = interleave(what, runs * settings.rounds, turns, metric)
                for peer, bar in ((PLAIN, plain_bar), (peers.LUKS, luks_bar)):
                    if peer in results:
                        pair = {name: results[name] for name in (SEALED, peer)}
                        metrics = (Metric(metric, "", of, "higher", bar),)
                        suffix = "" if peer == PLAIN else "/luks"
                        about = what if peer == PLAIN else f"{what}, beside luks"
                        figures += from_rounds(f"seal/{key}{suffix}", about, SEALED, metrics, pair)
    return figures


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures."""
    return [
        *measure_loopback(settings),
        *measure_tls(settings),
        *measure_links(settings),
        *measure_memory(settings),
        *measure_space(settings),
    ]
