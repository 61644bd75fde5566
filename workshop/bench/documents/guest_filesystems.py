"""File systems that this machine's kernel lacks, jfs and reiserfs, beside ext4: seven steps in a guest, on a model of a disk."""

import functools
import shutil
import time
from collections.abc import Mapping, Sequence

from bench.documents import harnessed, places
from bench.documents.filesystems import STEPS
from bench.documents.md import drives_of
from bench.documents.places import DESKTOP
from bench.harness.figures import Metric, from_rounds
from bench.harness.rounds import interleave
from bench.scratch import Scratch
from bench.settings import Settings
from boot.error import BuildError, MissingError
from boot.packages import Packages
from boot.tests import guest
from boot.tests.shell import PACKAGES, Shell, kernel
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.units import MIB

KEY = "filesystems-guest"
EXT4 = "ext4"
# By file system: the package of the program that makes it, unless this machine has that, and the command.
MAKERS = {
    EXT4: ("", "mkfs.ext4", "-q -F -E lazy_itable_init=0,lazy_journal_init=0"),
    "jfs": ("jfsutils", "sbin/mkfs.jfs", "-q"),
    "reiserfs": ("reiserfsprogs", "sbin/mkfs.reiserfs", "-q -f -f"),
}
PROGRAMS = ("md5sum", "strings", "blkls", "foremost", "tsk_recover", "tar")
FILES = {"etc/foremost.conf": "/etc/foremost.conf"}
DISK, IMAGE, TOP = "/dev/vda", "/dev/vdb", "/mnt"
# An image, and what the steps make of it.
DISK_SHARE = 6
MEMORY_MIB = 1024


def commands(programs: Mapping[str, str]) -> dict[str, str]:
    """Returns the command of each step, of programs by their paths: busybox has some of these names."""
    image = f"{TOP}/image.raw"
    found = {
        "copy": f"cat {IMAGE} >{image}",
        "md5sum": f"{programs['md5sum']} {image} >{TOP}/md5",
        "strings": f"{programs['strings']} -a -t d {image} >{TOP}/strings",
        "unallocated": f"{programs['blkls']} {image} >{TOP}/unallocated.raw",
        "foremost": f"{programs['foremost']} -Q -t all -o {TOP}/carved {image}",
        "tsk_recover": f"{programs['tsk_recover']} -e {image} {TOP}/recovered",
        "tar": f"{programs['tar']} -C {TOP} -cf {TOP}/recovered.tar recovered",
    }
    return {step: f"{command} && sync" for step, command in found.items()}


def available() -> tuple[dict[str, str], list[str]]:
    """Returns the command that makes each file system that the guest's kernel has, and the names of the others."""
    debian, packages = kernel(), Packages(PACKAGES)
    made, absent = {}, []
    for fs, (package, program, options) in MAKERS.items():
        try:
            debian.find(fs)
        except BuildError:
            absent.append(fs)
            continue
        path = f"{packages.unpack(package)}/{program}" if package else shutil.which(program) or program
        made[fs] = f"{path} {options} {DISK}"
    return made, absent


def examined(machine: Shell, fs: str, make: str, steps: Mapping[str, str]) -> dict[str, float]:
    """Makes the file system, does the steps on it, each from cold caches, and returns their seconds."""
    machine.run(f"{make} && mount -t {fs} {DISK} {TOP}")
    seconds = {}
    for step, command in steps.items():
        machine.run("sync; echo 3 >/proc/sys/vm/drop_caches")
        started = time.perf_counter()
        machine.run(command)
        seconds[step] = time.perf_counter() - started
    machine.run(f"umount {TOP}")
    return seconds


def figures_of(results: Mapping[str, Sequence[Mapping[str, float]]], absent: Sequence[str]) -> list[Figure]:
    """Returns a figure for each step, of equal candidates."""
    note = f"The guest's kernel {kernel().release} has no {' and no '.join(absent)}." if absent else ""
    metrics = [Metric(step, "", "s", "lower", note=note) for step in STEPS]
    return [figure for one in metrics for figure in from_rounds(KEY, one.key, None, (one,), results)]


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures."""
    if why := guest.missing("mkfs.ext4", *PROGRAMS):
        raise BenchError(why)
    with Scratch() as scratch, guest.room(scratch.ram_dir) as room:
        image = harnessed.image_of(scratch, settings)
        size_bytes = DISK_SHARE * image.stat().st_size
        disk = drives_of([str(places.model_file(scratch, DESKTOP, size_bytes))])
        evidence = ["-drive", f"file={image},format=raw,if=virtio,readonly=on"]
        programs = {name: shutil.which(name) or name for name in PROGRAMS}
        try:
            made, absent = available()
            makers = [command.partition(" ")[0] for command in made.values()]
            machine = Shell(
                room, scratch.ram_dir, (*programs.values(), *makers), ("virtio_blk", *made), FILES, MEMORY_MIB,
                options=(*disk, *evidence),
            )  # fmt: skip
        except MissingError as error:
            raise BenchError(str(error)) from error
        print(
            f"{KEY}: {', '.join(made)}; {size_bytes // MIB} MiB of the model; no {', '.join(absent) or 'other'}",
            flush=True,
        )
        try:
            steps = commands(programs)
            turns = {f"{fs} (model)": functools.partial(examined, machine, fs, made[fs], steps) for fs in made}
            results = interleave("file systems in a guest", settings.rounds, turns, STEPS)
        finally:
            machine.kill()
    return figures_of(results, absent)
