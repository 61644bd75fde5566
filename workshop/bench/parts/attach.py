"""Block devices of the kernel, in a guest: `cheetah attach` beside nbd-client.

Between a program and the bytes of a drive there are two processes and TCP: ours and the node. Between a program and the bytes of
nbdkit there is one process. So a drive is also measured beside nbdkit in front of another nbdkit.
"""

import json
import os

from bench.harness import fio
from bench.harness.figures import Metric, from_rounds
from bench.harness.rounds import interleave
from bench.scratch import Scratch
from bench.settings import Settings
from boot.tests import guest
from boot.tests.shell import Shell
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.units import KIB, MIB, iec

DRIVE, IMAGE, PEER = "attach of a drive", "attach of an image", "nbd-client on nbdkit memory"
FAR_PEER = "nbd-client on nbdkit nbd, in front of nbdkit memory over TCP"
DRIVE_UBLK, IMAGE_UBLK = "attach of a drive, ublk", "attach of an image, ublk"
# Our contenders: the ending of the figure's id, the source, and the kernel's driver.
OURS = {
    DRIVE: ("", "/run/case.drive", "nbd"),
    IMAGE: ("/image", "/run/image.raw", "nbd"),
    DRIVE_UBLK: ("/ublk", "/run/case.drive", "ublk"),
    IMAGE_UBLK: ("/image-ublk", "/run/image.raw", "ublk"),
}
# What each contender is measured beside: the ending of the figure's id, and the peer.
BESIDE = {name: (("", PEER),) for name in (IMAGE, IMAGE_UBLK)} | {
    name: (("", PEER), ("/far", FAR_PEER)) for name in (DRIVE, DRIVE_UBLK)
}
SIZE_BYTES = 256 * MIB
MEMORY_MIB = 2048
PLUGIN, FRONT_PLUGIN = (
    f"/usr/lib/x86_64-linux-gnu/nbdkit/plugins/nbdkit-{name}-plugin.so" for name in ("memory", "nbd")
)
PROGRAMS = ("fio", "nbd-client", "nbdkit")
# id, what, pattern, block, depth, the least ratio to nbd-client.
WORKLOADS = (
    ("seq-read-1m", "1 MiB sequential read, depth 4", "read", MIB, 4, 1.0),
    ("rand-read-4k-qd1", "4 KiB random read, depth 1", "randread", 4 * KIB, 1, 1.0),
    ("rand-read-4k-qd32", "4 KiB random read, depth 32", "randread", 4 * KIB, 32, 1.3),
)


def devices(machine: Shell) -> dict[str, str]:
    """Makes a block device of each contender with the same random bytes, all within the guest; returns their paths."""
    machine.run(f"head -c {SIZE_BYTES} /dev/urandom >/run/image.raw")
    machine.start(
        f"cheetah node --memory {iec(SIZE_BYTES * 5 // 4).replace(' ', '')} --listen 127.0.0.1:7001 --insecure"
    )
    machine.until("cheetah create /run/case.drive --nodes 127.0.0.1:7001 --layout linear --from /run/image.raw")
    made = {}
    for name, (_, source, driver) in OURS.items():
        attach = f"cheetah --json attach {source} --driver {driver} --background"
        made[name] = json.loads(machine.output(attach))["device"]
    made |= {PEER: "/dev/nbd9", FAR_PEER: "/dev/nbd10"}
    machine.start(f"nbdkit --foreground --unix /run/peer.sock {PLUGIN} {SIZE_BYTES}")
    machine.start(f"nbdkit --foreground --ipaddr 127.0.0.1 --port 7101 {PLUGIN} {SIZE_BYTES}")
    machine.start(f"nbdkit --foreground --unix /run/front.sock {FRONT_PLUGIN} uri=nbd://127.0.0.1:7101 retry=10")
    for name, socket in ((PEER, "peer"), (FAR_PEER, "front")):
        machine.until(f"nbd-client -unix /run/{socket}.sock {made[name]}")
        machine.run(f"dd if=/run/image.raw of={made[name]} bs=1M conv=fsync")
    for device in made.values():
        machine.run(f"cmp /run/image.raw {device}")
    return made


def measured(machine: Shell, device: str, job: fio.Job) -> dict[str, float]:
    """Runs a job in the guest; returns rate (MiB/s) and requests per second."""
    argv = fio.direct_command(job, device)
    result = fio.result(argv, machine.output(f"{' '.join(argv)} --readonly"))
    return {"rate": result.bytes_per_s / MIB, "iops": result.requests_per_s}


def measure(settings: Settings) -> list[Figure]:
    """Measures the part: each contender in turn."""
    if why := guest.missing(*PROGRAMS):
        raise BenchError(why)
    for plugin in (PLUGIN, FRONT_PLUGIN):
        if not os.path.exists(plugin):
            raise BenchError(f"there is no {plugin}")
    print(f"attach: {iec(SIZE_BYTES)} in an emulated machine with one processor", flush=True)
    figures: list[Figure] = []
    with Scratch() as scratch, guest.room(scratch.ram_dir) as room:
        machine = Shell(
            room, scratch.ram_dir, (*PROGRAMS, PLUGIN, FRONT_PLUGIN), ("nbd", "ublk_drv"), memory_mib=MEMORY_MIB
        )
        try:
            made = devices(machine)
            for key, what, rw, block_bytes, depth, bar in WORKLOADS:
                job = fio.Job(rw, block_bytes, SIZE_BYTES, depth, runtime_s=settings.runtime_s)
                turns = {
                    name: lambda device=device, job=job: measured(machine, device, job) for name, device in made.items()
                }
                metric, unit = ("rate", "MiB/s") if block_bytes >= MIB else ("iops", "requests/s")
                results = interleave(what, settings.rounds, turns, metric)
                metrics = (Metric(metric, "", unit, "higher", bar),)
                for ours, (suffix, _, _) in OURS.items():
                    for ending, peer in BESIDE[ours]:
                        pair = {name: results[name] for name in (ours, peer)}
                        id = f"attach/{key}{suffix}{ending}"
                        figures += from_rounds(id, f"{what}, {ours}", ours, metrics, pair)
        finally:
            machine.kill()
    return figures
