"""A disk over AoE, NBD and iSCSI on a link with delay and loss, all in a guest: `cheetah acquire` of each."""

import json
import os
import shutil
from collections.abc import Callable

from bench.harness.rounds import interleave
from bench.scratch import Scratch
from bench.settings import Settings
from boot.error import MissingError
from boot.tests import guest
from boot.tests.shell import Shell
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.units import MIB, iec

AOE, NBD, ISCSI = "AoE (vblade)", "NBD (nbdkit)", "iSCSI (tgtd)"
SIZE_BYTES, SIZE_BYTES_QUICK = 8 * MIB, 2 * MIB
ROUNDS_MAX = 3
DELAYS_MS = (0, 10, 20)
LOSSES_PERCENT = (0, 0.5)
PLUGIN = "/usr/lib/x86_64-linux-gnu/nbdkit/plugins/nbdkit-file-plugin.so"
PROGRAMS = ("ip", "tc", "vblade", "nbdkit", "tgtd", "tgtadm")
MODULES = ("aoe", "veth", "sch_netem")
SERVER, DEVICE, IQN = "10.9.0.2", "/dev/etherd/e7.1", "iqn.2026-11.org.example:disk"
# By their paths: busybox has programs of these names that can do less.
IP, TC = (shutil.which(name) or name for name in ("ip", "tc"))
IN_SERVER = f"{IP} netns exec server"


def start(machine: Shell, size_bytes: int) -> dict[str, str]:
    """Starts a server of each protocol behind a link, with the same disk; returns the sources."""
    # tgtd has its socket below /var/run.
    machine.run(f"mkdir -p /var/run && head -c {size_bytes} /dev/urandom >/run/disk.raw")
    # A packet of several frames would be lost as one, so the sender makes single frames.
    single = "gso_max_segs 1"
    machine.run(
        f"{IP} netns add server && {IP} link add here type veth peer name there netns server"
        f" && {IP} addr add 10.9.0.1/24 dev here && {IP} link set here {single} up"
        f" && {IN_SERVER} {IP} addr add {SERVER}/24 dev there && {IN_SERVER} {IP} link set there {single} up"
        f" && {IN_SERVER} {IP} link set lo up"
    )
    machine.start(f"{IN_SERVER} vblade -r 7 1 there /run/disk.raw")
    machine.start(f"{IN_SERVER} nbdkit --foreground --readonly --ipaddr {SERVER} {PLUGIN} /run/disk.raw")
    machine.start(f"{IN_SERVER} tgtd --foreground --iscsi portal={SERVER}:3260")
    admin = f"{IN_SERVER} tgtadm --lld iscsi"
    machine.until(f"{admin} --op new --mode target --tid 1 --targetname {IQN}")
    machine.run(
        f"{admin} --op new --mode logicalunit --tid 1 --lun 1 --backing-store /run/disk.raw"
        f" && {admin} --op update --mode logicalunit --tid 1 --lun 1 --params readonly=1"
        f" && {admin} --op bind --mode target --tid 1 --initiator-address ALL"
    )
    machine.until(f"echo >/dev/etherd/discover; test -b {DEVICE}")
    return {AOE: DEVICE, NBD: f"nbd://{SERVER}/", ISCSI: f"iscsi://{SERVER}/{IQN}/1"}


def shape(machine: Shell, delay_ms: int, loss_percent: float) -> None:
    """Gives both directions of the link this delay and loss."""
    for enter, end in (("", "here"), (IN_SERVER, "there")):
        loss = f"loss {loss_percent}%" if loss_percent else ""
        machine.run(f"{enter} {TC} qdisc replace dev {end} root netem limit 10000 delay {delay_ms}ms {loss}")


def acquired(machine: Shell, source: str) -> dict[str, float]:
    """Acquires a source, from a cold cache; returns the rate in MiB/s."""
    machine.run("sync; echo 3 >/proc/sys/vm/drop_caches; rm -f /run/copy.raw*")
    command = f"cheetah --json acquire {source} /run/copy.raw --hash none --timeout 60"
    report = json.loads(machine.output(f"{command} | tail -1"))["report"]
    machine.run("cmp /run/disk.raw /run/copy.raw")
    return {"rate": report["size_bytes"] / MIB / report["duration_s"]}


def measure(settings: Settings) -> list[Figure]:
    """Measures the part: each protocol in turn, at each delay and loss."""
    if why := guest.missing(*PROGRAMS):
        raise BenchError(why)
    if not os.path.exists(PLUGIN):
        raise BenchError(f"there is no {PLUGIN}")
    size_bytes = SIZE_BYTES_QUICK if settings.quick else SIZE_BYTES
    rounds = min(settings.rounds, ROUNDS_MAX)
    print(f"aoe: {iec(size_bytes)} in an emulated machine with one processor", flush=True)
    figures: list[Figure] = []
    with Scratch() as scratch, guest.room(scratch.ram_dir) as room:
        try:
            machine = Shell(room, scratch.ram_dir, (*PROGRAMS, PLUGIN), MODULES)
        except MissingError as error:
            raise BenchError(str(error)) from error
        try:
            sources = start(machine, size_bytes)
            for delay_ms in DELAYS_MS:
                for loss_percent in LOSSES_PERCENT:
                    shape(machine, delay_ms, loss_percent)
                    turns: dict[str, Callable[[], dict[str, float]]] = {
                        name: lambda source=source: acquired(machine, source)  # type: ignore[misc]
                        for name, source in sources.items()
                    }
                    what = f"one-way delay {delay_ms} ms, loss {loss_percent} %"
                    results = interleave(what, rounds, turns)
                    samples = {name: [result["rate"] for result in of_one] for name, of_one in results.items()}
                    key = f"aoe/{delay_ms}ms-{loss_percent}"
                    figures.append(Figure(key, what, "MiB/s", None, samples, baseline=AOE))
        finally:
            machine.kill()
    return figures
