"""iSCSI over a long link: `cheetah acquire` beside the throughput of the link, qemu-img, and dd over nbdfuse."""

import os
import time
from typing import Any

from bench.harness.figures import Metric, from_rounds
from bench.harness.process import timed
from bench.harness.rounds import interleave
from bench.images.acquired import Images
from bench.scratch import Scratch
from bench.settings import Settings
from bench.tools import cheetah, iperf, peers
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.process import run
from cheetah.bench.units import MIB, iec
from lab.network import Lab

RTT = "20ms"
ROUNDS_MAX = 3
OURS = "cheetah acquire"

# Rate and image: about ten and twenty seconds, so that a connection's first round trips do not dominate.
LINKS = (("100mbit", "100 Mbit/s", 256 * MIB), ("1gbit", "1 Gbit/s", 1024 * MIB))
# dd requests one piece at a time, a few MiB per second at this delay: it copies only this much.
DD_BYTES = 32 * MIB


def by_cheetah(scratch: Scratch, lab: Lab, uri: str, image: Any) -> dict[str, Any]:
    """Acquires the logical unit, hashed and flushed."""
    with scratch.child() as turn:
        target = os.path.join(turn.disk_dir, "acquired.raw")
        start = time.perf_counter()
        report = cheetah.acquire(uri, target, "md5", [], lab.examiner.command)
        seconds = time.perf_counter() - start
        if report["hashes"]["md5"] != image.md5:
            raise BenchError(f"{uri}: acquired with MD5 {report['hashes']['md5']}, not {image.md5}")
        return {"rate": image.size_bytes / MIB / seconds}


def by_qemu_img(scratch: Scratch, lab: Lab, uri: str, image: Any) -> dict[str, Any]:
    """Copies it with qemu-img and flushes, without hashing."""
    with scratch.child() as turn:
        target = os.path.join(turn.disk_dir, "converted.raw")
        line = 'qemu-img convert -f raw -O raw "$1" "$2" && sync "$2"'
        seconds = timed(lab.examiner.command(["bash", "-c", line, "qemu-img", uri, target]))
        return {"rate": image.size_bytes / MIB / seconds}


def by_dd(scratch: Scratch, lab: Lab, uri: str, image: Any) -> dict[str, Any]:
    """Copies the beginning with dd, from an nbdfuse mount of qemu-nbd with its iSCSI initiator."""
    size_bytes = min(DD_BYTES, image.size_bytes)
    with scratch.child() as turn:
        target = os.path.join(turn.disk_dir, "copied.raw")
        path = peers.nbdfuse_on_qemu(turn, uri, lab.examiner.command)
        argv = ["dd", "bs=1M", f"count={size_bytes // MIB}", "conv=fsync", "status=none", f"if={path}", f"of={target}"]
        return {"rate": size_bytes / MIB / timed(argv)}


def measure_link(rate: Any, name: str, size_bytes: int, settings: Settings) -> Any:
    """Returns the figures of one link."""
    rounds = min(settings.rounds, ROUNDS_MAX)
    with Scratch() as scratch, Lab(1, rate, RTT) as lab:
        image = Images(scratch).get("random", size_bytes)
        image.cache(warm=True)
        iperf.start_servers(scratch, lab)
        uri = peers.tgtd(scratch, image.path, lab.nodes[0].address, lab.nodes[0].command)
        run(lab.examiner.command(["iscsi-inq", uri]))
        carried = "iperf3"
        turns = {
            OURS: lambda: by_cheetah(scratch, lab, uri, image),
            "qemu-img convert": lambda: by_qemu_img(scratch, lab, uri, image),
            "dd over nbdfuse": lambda: by_dd(scratch, lab, uri, image),
            carried: lambda: {"rate": iperf.link_rate(lab, lab.nodes[0], True, 1 if settings.quick else 5, omit_s=1)},
        }
        what = f"iSCSI over {name}, {RTT}"
        results = interleave(what, rounds, turns)
        link = {one: results[one] for one in (OURS, carried)}
        tools = {one: rounds for one, rounds in results.items() if one != carried}
        figures = from_rounds(
            f"iscsi/{rate}", f"{what}, beside the link", OURS, (Metric("rate", "", "MiB/s", "higher", 0.95),), link
        )
        return figures + from_rounds(
            f"iscsi/{rate}-tools", f"{what}, beside other tools", OURS, (Metric("rate", "", "MiB/s"),), tools
        )


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures."""
    links = [(rate, name, 16 * MIB if settings.quick else size_bytes) for rate, name, size_bytes in LINKS]
    sizes = ", ".join(f"{iec(size_bytes)} over {name}" for _, name, size_bytes in links)
    print(f"iscsi: {sizes}, {RTT} of round trip; about two minutes a round", flush=True)
    return [figure for link in links for figure in measure_link(*link, settings)]
