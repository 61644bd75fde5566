"""A disk over AoE, NBD and iSCSI on a link with delay and loss, all in a guest: `cheetah acquire` of each, and a listing with some
files by The Sleuth Kit."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping

from bench.harness.rounds import interleave, while_time_lasts
from bench.images.filesystem import image_of
from bench.scratch import Scratch
from bench.settings import Settings
from bench.tools import examiner
from boot.error import MissingError
from boot.tests import guest
from boot.tests.shell import Shell
from cheetah.bench import tree
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.process import run
from cheetah.bench.units import MIB, iec

AOE, NBD, ISCSI = "AoE (vblade)", "NBD (nbdkit)", "iSCSI (tgtd)"
SIZE_BYTES, SIZE_BYTES_QUICK = 8 * MIB, 2 * MIB
# The image to examine has about as many files as fit.
IMAGE_BYTES, IMAGE_BYTES_QUICK = 32 * MIB, 16 * MIB
FILES = 20
ROUNDS_MAX = 3
DELAYS_MS = (0, 10, 20)
LOSSES_PERCENT = (0, 0.5)
PLUGIN = "/usr/lib/x86_64-linux-gnu/nbdkit/plugins/nbdkit-file-plugin.so"
PROGRAMS = ("ip", "tc", "vblade", "nbdkit", "tgtd", "tgtadm", "fls", "icat")
MODULES = ("aoe", "nbd", "veth", "sch_netem")
SERVER, IQN = "10.9.0.2", "iqn.2026-11.org.example:disk"
# By their paths: busybox has programs of these names that can do less.
IP, TC = (shutil.which(name) or name for name in ("ip", "tc"))
IN_SERVER = f"{IP} netns exec server"
# The ends of the links: frames of 1500 bytes, and jumbo frames, over which AoE alone is measured.
LINKS = (("here", "there", 1500), ("here-wide", "there-wide", 9000))


@dataclasses.dataclass(frozen=True)
class AoeTarget:
    """A target of vblade: its name in tables, its slot, its interface and its options."""

    name: str
    slot: int
    interface: str = "there"
    options: str = ""


QUEUE = 64
TARGETS = (
    AoeTarget(AOE, 1),
    AoeTarget(f"AoE (vblade -b {QUEUE})", 2, options=f"-b {QUEUE}"),
    AoeTarget(f"AoE (vblade -b {QUEUE}, jumbo frames)", 3, "there-wide", f"-b {QUEUE}"),
)


@dataclasses.dataclass(frozen=True)
class Disk:
    """A disk in the guest: its file, and what tells its targets from those of another disk."""

    path: str
    slots_from: int
    port: int
    lun: int

    def device(self, target: AoeTarget) -> str:
        """Returns the kernel's device of an AoE target."""
        return f"/dev/etherd/e7.{self.slots_from + target.slot}"


NOISE, EXAMINED = Disk("/run/disk.raw", 0, 10809, 1), Disk("/image.raw", 10, 10810, 2)


def wire(machine: Shell) -> None:
    """Makes the server's namespace and the links to it."""
    # A packet of several frames would be lost as one, so the sender makes single frames.
    single = "gso_max_segs 1"
    machine.run(f"{IP} netns add server && {IN_SERVER} {IP} link set lo up")
    for here, there, mtu in LINKS:
        machine.run(
            f"{IP} link add {here} type veth peer name {there} netns server"
            f" && {IP} link set {here} mtu {mtu} {single} up && {IN_SERVER} {IP} link set {there} mtu {mtu} {single} up"
        )
    machine.run(f"{IP} addr add 10.9.0.1/24 dev here && {IN_SERVER} {IP} addr add {SERVER}/24 dev there")


def serve(machine: Shell, disk: Disk) -> dict[str, str]:
    """Serves a disk by each protocol; returns the sources."""
    for target in TARGETS:
        slot = disk.slots_from + target.slot
        machine.start(f"{IN_SERVER} vblade {target.options} -r 7 {slot} {target.interface} {disk.path}")
    nbdkit = f"nbdkit --foreground --readonly --ipaddr {SERVER} --port {disk.port}"
    machine.start(f"{IN_SERVER} {nbdkit} {PLUGIN} {disk.path}")
    admin = f"{IN_SERVER} tgtadm --lld iscsi --mode logicalunit --tid 1 --lun {disk.lun}"
    machine.until(f"{admin} --op new --backing-store {disk.path}")
    machine.run(f"{admin} --op update --params readonly=1")
    sources = {target.name: disk.device(target) for target in TARGETS}
    for device in sources.values():
        machine.until(f"echo >/dev/etherd/discover; test -b {device}")
    return sources | {NBD: f"nbd://{SERVER}:{disk.port}/", ISCSI: f"iscsi://{SERVER}/{IQN}/{disk.lun}"}


def start(machine: Shell, size_bytes: int) -> tuple[dict[str, str], dict[str, str]]:
    """Starts the servers of both disks; returns the sources of each."""
    # tgtd has its socket below /var/run.
    machine.run(f"mkdir -p /var/run && head -c {size_bytes} /dev/urandom >{NOISE.path}")
    wire(machine)
    machine.start(f"{IN_SERVER} tgtd --foreground --iscsi portal={SERVER}:3260")
    admin = f"{IN_SERVER} tgtadm --lld iscsi --mode target --tid 1"
    machine.until(f"{admin} --op new --targetname {IQN}")
    sources = serve(machine, NOISE), serve(machine, EXAMINED)
    machine.run(f"{admin} --op bind --initiator-address ALL")
    return sources


def shape(machine: Shell, delay_ms: int, loss_percent: float) -> None:
    """Gives both directions of the links this delay and loss."""
    loss = f"loss {loss_percent}%" if loss_percent else ""
    for here, there, _ in LINKS:
        for enter, end in (("", here), (IN_SERVER, there)):
            machine.run(f"{enter} {TC} qdisc replace dev {end} root netem limit 10000 delay {delay_ms}ms {loss}")


def acquired(machine: Shell, source: str) -> dict[str, float]:
    """Acquires a source, from a cold cache; returns the rate in MiB/s."""
    machine.run("sync; echo 3 >/proc/sys/vm/drop_caches; rm -f /run/copy.raw*")
    command = f"cheetah --json acquire {source} /run/copy.raw --hash none --timeout 60"
    report = json.loads(machine.output(f"{command} | tail -1"))["report"]
    machine.run(f"cmp {NOISE.path} /run/copy.raw")
    return {"rate": report["size_bytes"] / MIB / report["duration_s"]}


def examined(device: str, out: str) -> str:
    """Returns the command that lists a device and extracts files, and keeps what it finds under this name."""
    extract = f"while read -r address; do icat {device} $address; done </run/addresses"
    return f"fls -r -m / {device} >{out}.listing && {extract} | sha256sum >{out}.content"


def triaged(machine: Shell, source: str) -> dict[str, float]:
    """Lists a source and extracts files, from cold caches, by the kernel's device of AoE or by one of `cheetah attach`; returns the
    seconds from the attaching command on."""
    machine.run("sync; echo 3 >/proc/sys/vm/drop_caches")
    begun = time.perf_counter()
    device = source
    if not source.startswith("/dev/"):
        said = machine.output(f"cheetah --json attach {source} --background")
        # Warnings come before it.
        device = json.loads(said.splitlines()[-1])["device"]
    machine.run(examined(device, "/run/found"))
    seconds = time.perf_counter() - begun
    machine.run("cmp /run/known.listing /run/found.listing && cmp /run/known.content /run/found.content")
    if device != source:
        machine.run(f"cheetah detach {device}")
    return {"seconds": seconds}


def image(scratch: Scratch, size_bytes: int) -> tuple[str, list[str]]:
    """Makes a file system with this machine's own files; returns its path, and the addresses of the files to extract."""
    files = os.path.join(scratch.disk_dir, "tree")
    tree.make(files, size_bytes // (128 << 10), size_bytes // 2)
    path = image_of(scratch, files, size_bytes)
    listing = run([*examiner.LISTING, path])
    return path, [address for address, _ in examiner.regular_files(listing)][:FILES]


Measured = Callable[[Shell, str], dict[str, float]]


def measure_column(
    machine: Shell, sources: Mapping[str, str], work: Measured, condition: tuple[int, float], rounds: int
) -> list[Figure]:
    """Returns the figure of one work over the link with this delay and loss."""
    delay_ms, loss_percent = condition
    shape(machine, delay_ms, loss_percent)
    over = f"one-way delay {delay_ms} ms, loss {loss_percent} %"
    acquires = work is acquired
    what = over if acquires else f"listing and {FILES} files, {over}"
    metric, unit, better = ("rate", "MiB/s", "higher") if acquires else ("seconds", "s", "lower")
    turns = {name: functools.partial(work, machine, source) for name, source in sources.items()}
    results = interleave(what, rounds, turns, metric)
    samples = {name: [result[metric] for result in of_one] for name, of_one in results.items()}
    key = f"aoe/{'' if acquires else 'triage/'}{delay_ms}ms-{loss_percent}"
    return [Figure(key, what, unit, None, samples, better, baseline=AOE)]


def measure(settings: Settings) -> list[Figure]:
    """Measures the part: each protocol in turn, at each delay and loss."""
    if why := guest.missing(*PROGRAMS):
        raise BenchError(why)
    if not os.path.exists(PLUGIN):
        raise BenchError(f"there is no {PLUGIN}")
    size_bytes = SIZE_BYTES_QUICK if settings.quick else SIZE_BYTES
    rounds = min(settings.rounds, ROUNDS_MAX)
    print(f"aoe: {iec(size_bytes)} in an emulated machine with one processor", flush=True)
    with Scratch() as scratch, guest.room(scratch.ram_dir) as room:
        disk, addresses = image(scratch, IMAGE_BYTES_QUICK if settings.quick else IMAGE_BYTES)
        programs, files = (*PROGRAMS, PLUGIN), {EXAMINED.path.lstrip("/"): disk}
        try:
            machine = Shell(room, scratch.ram_dir, programs, MODULES, files)
        except MissingError as error:
            raise BenchError(str(error)) from error
        try:
            noise, sources = start(machine, size_bytes)
            machine.run(f"printf '%s\\n' {' '.join(addresses)} >/run/addresses")
            machine.run(examined(EXAMINED.path, "/run/known"))
            works: tuple[tuple[Mapping[str, str], Measured], ...] = ((noise, acquired), (sources, triaged))
            return while_time_lasts(
                functools.partial(measure_column, machine, of_work, work, (delay_ms, loss_percent), rounds)
                for of_work, work in works
                for delay_ms in DELAYS_MS
                for loss_percent in LOSSES_PERCENT
            )
        finally:
            machine.kill()
