"""The check of the arrays: four models of disks under the kernel's own RAID (md), in a guest, and under our stripe and parity.

Both have the same models, and both are compared with one of the disks on the same way, so that what a guest costs is on both
sides of its ratio.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence

from bench.documents import places
from bench.documents.places import DESKTOP
from bench.harness import fio
from bench.harness.figures import Metric, from_rounds
from bench.harness.fio import Job
from bench.harness.rounds import interleave
from bench.scratch import Scratch
from bench.settings import Settings
from bench.tools import cheetah
from boot.error import MissingError
from boot.packages import Packages
from boot.tests import guest
from boot.tests.shell import PACKAGES, Shell
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.storage.targets import disk_model
from cheetah.bench.units import MIB, iec

KEY = "arrays-md"
DISKS = 4
UNIT = "64KiB"
OURS, MD = "ours (model)", "md (model)"
ONE, RAID_0, RAID_5 = "one disk", "RAID 0", "RAID 5"
# By array: the layout of a drive, and the level of md.
ARRAYS = {RAID_0: ("stripe", "0"), RAID_5: ("parity", "5")}
ORDERS = ("read", "write")
MODULES = ("virtio_blk", "md-mod", "raid0", "raid456")
DEPTH = 8
DISK_BYTES, QUICK_DISK_BYTES = 512 * MIB, 128 * MIB
# What md and a drive keep of each disk.
RESERVED_BYTES = 32 * MIB
ROUNDS_MAX = 5

Measure = Callable[[Job], dict[str, float]]


def content_bytes(array: str, disk_bytes: int) -> int:
    """Returns the content that is read and written: less than an array has."""
    each = disk_bytes - RESERVED_BYTES
    return each * {ONE: 1, RAID_0: DISKS, RAID_5: DISKS - 1}[array]


def by_drive(scratch: Scratch, array: str, disk_bytes: int) -> Measure:
    """Makes a drive over models of its own, each behind an NBD server, and exports it."""
    count = 1 if array == ONE else DISKS
    layout = "linear" if array == ONE else ARRAYS[array][0]
    files = [places.model_file(scratch, DESKTOP, disk_bytes) for _ in range(count)]
    nodes = ",".join(disk_model.exported(scratch, file) for file in files)
    path = scratch.path("drive") + ".drive"
    unit = [] if array == ONE else ["--unit", UNIT]
    argv = ["create", path, "--nodes", nodes, "--layout", layout, *unit, "--no-seal"]
    cheetah.call([*argv, "--size", iec(content_bytes(array, disk_bytes))])
    return cheetah.export(scratch, path, writable=True).measure


def in_guest(machine: Shell, device: str) -> Measure:
    """Returns the measurement of a block device of the guest."""

    def measure(job: Job) -> dict[str, float]:
        argv = fio.direct_command(job, device)
        return {"rate": fio.result(argv, machine.output(" ".join(argv))).bytes_per_s / MIB}

    return measure


def assembled(machine: Shell, mdadm: str, array: str, disks: Sequence[str], number: int) -> str:
    """Makes an array of md; returns its device. It is not synchronised: its disks are blank, and so is their parity."""
    device, level = f"/dev/md{number}", ARRAYS[array][1]
    options = f"--level={level} --chunk={UNIT.removesuffix('iB')} --raid-devices={len(disks)} --homehost=lab"
    options += " --assume-clean --bitmap=none" if level != "0" else ""
    machine.run(f"{mdadm} --create {device} --run --force {options} {' '.join(disks)}")
    return device


def drives_of(paths: Sequence[str]) -> list[str]:
    """Returns QEMU's options for disks that are files on this machine, whose writes no cache of this machine takes."""
    return [word for path in paths for word in ("-drive", f"file={path},format=raw,if=virtio,cache=none")]


def speed_ups(array: str, order: str, results: Mapping[str, Sequence[Mapping[str, float]]]) -> Iterator[Figure]:
    """Yields how many times as fast as one disk an array is, ours beside md's, and its rates."""
    what = f"{array} of {DISKS} disks, {UNIT}, sequential {order} in 1 MiB"
    rounds = {side: (results[f"{array}, {side}"], results[f"{ONE}, {side}"]) for side in (OURS, MD)}
    times = {
        side: [{"times": mine["rate"] / one["rate"]} for mine, one in zip(*pair, strict=True)]
        for side, pair in rounds.items()
    }
    prefix = f"{KEY}/{array}/{order}"
    yield from from_rounds(prefix, what, OURS, (Metric("times", "times one disk", "×"),), times)
    rates = {side: pair[0] for side, pair in rounds.items()}
    yield from from_rounds(prefix, what, OURS, (Metric("rate", "", "MiB/s"),), rates)


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures."""
    if why := guest.missing("fio"):
        raise BenchError(why)
    disk_bytes = QUICK_DISK_BYTES if settings.quick else DISK_BYTES
    figures: list[Figure] = []
    with Scratch() as scratch, guest.room(scratch.ram_dir) as room:
        sides: dict[str, Measure] = {}
        for array in (ONE, *ARRAYS):
            sides[f"{array}, {OURS}"] = by_drive(scratch, array, disk_bytes)
        # One disk, and those of each array, as vda, vdb and so on.
        count = 1 + DISKS * len(ARRAYS)
        files = [str(places.model_file(scratch, DESKTOP, disk_bytes)) for _ in range(count)]
        names = [f"/dev/vd{chr(ord('a') + number)}" for number in range(count)]
        try:
            mdadm = f"{Packages(PACKAGES).unpack('mdadm')}/sbin/mdadm"
            machine = Shell(room, scratch.ram_dir, ("fio", mdadm), MODULES, options=drives_of(files))
        except MissingError as error:
            raise BenchError(str(error)) from error
        try:
            sides[f"{ONE}, {MD}"] = in_guest(machine, names[0])
            for number, array in enumerate(ARRAYS):
                disks = names[1 + DISKS * number :][:DISKS]
                sides[f"{array}, {MD}"] = in_guest(machine, assembled(machine, mdadm, array, disks, number))
            for order in ORDERS:
                turns = {
                    name: functools.partial(side, _job(order, name.partition(",")[0], disk_bytes, settings))
                    for name, side in sides.items()
                }
                results = interleave(f"sequential {order}", min(settings.rounds, ROUNDS_MAX), turns)
                for array in ARRAYS:
                    figures += speed_ups(array, order, results)
        finally:
            machine.kill()
    return figures


def _job(order: str, array: str, disk_bytes: int, settings: Settings) -> Job:
    size_bytes = content_bytes(array, disk_bytes)
    return Job(order, MIB, size_bytes, DEPTH, runtime_s=settings.runtime_s, fsync_at_end=order == "write")
