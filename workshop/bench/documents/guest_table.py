"""Table 5.1 of the thesis on a block device of the kernel: ext4 on `cheetah attach`, in a guest, beside the model of its disk."""

import functools
import json
import os
from collections.abc import Iterator, Mapping, Sequence

from bench.documents import places
from bench.documents.md import drives_of
from bench.documents.places import DESKTOP, IDE
from bench.harness import fio
from bench.harness.cases import chosen
from bench.harness.figures import Metric, from_rounds
from bench.harness.fio import Job
from bench.harness.rounds import interleave
from bench.parts import thesis
from bench.scratch import Scratch
from bench.settings import Settings
from bench.tools import cheetah
from boot.error import MissingError
from boot.tests import guest
from boot.tests.shell import Shell
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.storage.steps.cell import STRIDE_RECORDS
from cheetah.bench.units import KIB, MIB, iec

KEY = "thesis-table-guest"
OURS = "attach of a drive"
NODES = 2
RECORD_BYTES = 4 * KIB
PROGRAMS = ("fio", "mkfs.ext4")
MODULES = ("nbd", "ext4", "virtio_blk")
# An emulated processor makes few requests a second: a pass is cut off when its rate is known.
PASS_S = 30.0
HOW = {"buffered": False, "direct": True}


def jobs(size_bytes: int, runtime_s: float, direct: bool) -> dict[str, Job]:
    """Returns a job for each row of the table. There is no Python in the guest, so fio reads backward and strided, too."""
    extra = (f"--direct={int(direct)}",)
    strided_bytes = size_bytes // (STRIDE_RECORDS * RECORD_BYTES) * RECORD_BYTES
    orders = {
        "write": ("write", ()),
        "rewrite": ("write", ()),
        "read": ("read", ()),
        "reread": ("read", ()),
        "random-read": ("randread", ()),
        "random-write": ("randwrite", ()),
        # fio adds this to the end of the last record.
        "backward": (f"read:-{2 * RECORD_BYTES}", ()),
        "strided": (f"read:{(STRIDE_RECORDS - 1) * RECORD_BYTES}", (f"--io_size={strided_bytes}",)),
    }
    return {
        key: Job(
            rw, RECORD_BYTES, size_bytes, runtime_s=runtime_s if key.startswith("random") else PASS_S, loops=False,
            fsync_at_end="write" in rw, extra=(*extra, *more),
        )
        for key, (rw, more) in orders.items()
    }  # fmt: skip


def table(machine: Shell, directory: str, size_bytes: int, runtime_s: float, direct: bool) -> dict[str, float]:
    """Measures all rows on one file in a directory of the guest, each from cold caches, in MiB/s."""
    path = f"{directory}/table.dat"
    machine.run(f"truncate -s {size_bytes} {path}")
    rates = {}
    for key, job in jobs(size_bytes, runtime_s, direct).items():
        machine.run("sync; echo 3 >/proc/sys/vm/drop_caches")
        argv = fio.plain_command(job, path)
        rates[key] = fio.result(argv, machine.output(" ".join(argv))).bytes_per_s / MIB
    machine.run(f"rm {path}; sync")
    return rates


def mounted(machine: Shell, device: str, name: str) -> str:
    """Makes ext4 on a device of the guest; returns its directory there."""
    directory = f"/run/{name}"
    options = "lazy_itable_init=0,lazy_journal_init=0"
    machine.run(f"mkfs.ext4 -q -F -E {options} {device} && mkdir {directory} && mount {device} {directory}")
    return directory


def drive_of(scratch: Scratch, room: guest.Room, size_bytes: int) -> str:
    """Makes a drive over nodes on this machine's side of the network; returns the path of its file."""

    def enter(argv: Sequence[str]) -> Sequence[str]:
        return room.command(*argv)

    share_bytes = size_bytes // NODES + 4 * MIB
    ports = (places.PORT + number * places.PORTS_EACH for number in range(NODES))
    nodes = [places.node_at(scratch, share_bytes, guest.HOST_ADDRESS, port, enter) for port in ports]
    return cheetah.create(scratch, nodes, size_bytes, enter=enter)


def figures_of(how: str, results: Mapping[str, Sequence[Mapping[str, float]]]) -> Iterator[Figure]:
    """Yields a figure for each row, with the thesis's ratio in brackets."""
    for key, what, ratio in thesis.TABLE:
        said = f"{how}: {what} (thesis: {ratio} ×)"
        yield from from_rounds(f"{KEY}/{how}", said, OURS, (Metric(key, "", "MiB/s"),), results)


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures."""
    if why := guest.missing(*PROGRAMS):
        raise BenchError(why)
    content_bytes = 32 * MIB if settings.quick else 256 * MIB
    size_bytes = places.room_for(content_bytes)
    wanted = chosen(HOW, settings)
    print(f"{KEY}: a file of {iec(content_bytes)} in an emulated machine with one processor", flush=True)
    figures: list[Figure] = []
    with Scratch() as scratch, guest.room(scratch.ram_dir) as room:
        drive = drive_of(scratch, room, size_bytes)
        disks = [str(places.model_file(scratch, name, size_bytes)) for name in (IDE, DESKTOP)]
        try:
            machine = Shell(
                room, scratch.ram_dir, PROGRAMS, MODULES, {"case.drive": drive}, options=drives_of(disks)
            )  # fmt: skip
        except MissingError as error:
            raise BenchError(str(error)) from error
        try:
            attached = machine.output("cheetah --json attach /case.drive --writable --timeout 60 --background")
            device = json.loads(attached.splitlines()[-1])["device"]
            directories = {
                OURS: mounted(machine, device, os.path.basename(device)),
                IDE: mounted(machine, "/dev/vda", "ide"),
                DESKTOP: mounted(machine, "/dev/vdb", "desktop"),
            }
            for how in wanted:
                turns = {
                    name: functools.partial(table, machine, directory, content_bytes, settings.runtime_s, HOW[how])
                    for name, directory in directories.items()
                }
                rows = [key for key, _, _ in thesis.TABLE]
                figures += figures_of(how, interleave(f"table 5.1, {how}:", settings.rounds, turns, rows))
        finally:
            machine.kill()
    return figures
