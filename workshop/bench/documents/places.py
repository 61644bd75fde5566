"""Places to work in, each a directory with ext4: this machine's disk, models of disks, and a drive over nodes."""

import os
from pathlib import Path

from bench.images.filesystem import ext4_on
from bench.scratch import Scratch
from bench.tools import cheetah
from cheetah.bench import verbs
from cheetah.bench.storage.targets import disk_model, memory
from cheetah.bench.units import GIB, MIB, iec
from lab import disk
from lab.network import EXAMINER_ADDRESS, Lab

DRIVE = "drive"
LOCAL = "this machine's disk"
IDE, DESKTOP, VELOCIRAPTOR = "IDE disk (model)", "7,200 rpm disk (model)", "10,000 rpm disk (model)"
MODELS = {IDE: "ide", DESKTOP: "desktop", VELOCIRAPTOR: "velociraptor"}
PORT = 10809
# A node has two ports.
PORTS_EACH = 2
# What a directory with ext4 takes beyond its files.
FILE_SYSTEM_SHARE, FILE_SYSTEM_BYTES = 0.05, 96 * MIB
# What must stay free when models keep their bytes in memory.
FREE_BYTES = 4 * GIB


def room_for(content_bytes: int) -> int:
    """Returns the size of a device whose ext4 holds that much."""
    return (int(content_bytes * (1 + FILE_SYSTEM_SHARE)) + FILE_SYSTEM_BYTES) // MIB * MIB


def model_program() -> None:
    """Makes the program that serves models known to the harness, building it if needed."""
    os.environ.setdefault(disk_model.PROGRAM, disk.build())


def model_file(scratch: Scratch, name: str, size_bytes: int) -> Path:
    """Serves the beginning of a model of a disk; returns its file."""
    model_program()
    return disk_model.serve(scratch, MODELS[name], size_bytes)


def on_model(scratch: Scratch, name: str, content_bytes: int) -> str:
    """Returns a directory on the beginning of a model of a disk. Its bytes are in memory while that suffices, else in a
    sparse file on this machine's disk, which is faster than any model."""
    model_program()
    size = room_for(content_bytes)
    fits = memory.available() - size > FREE_BYTES
    store = "" if fits else os.path.join(scratch.disk_dir, scratch.unique("store"))
    return ext4_on(scratch, str(disk_model.serve(scratch, MODELS[name], size, store)))


def on_drive(scratch: Scratch, lab: Lab, nodes: int, content_bytes: int) -> str:
    """Returns a directory on a drive striped over nodes as in the thesis: one on the examiner's machine, the others
    together behind the examiner's one link, the link of the lab's only node."""
    size = room_for(content_bytes)
    far, share = lab.nodes[0], size // nodes + 4 * MIB
    started = [node_at(scratch, share, EXAMINER_ADDRESS, PORT, lab.examiner.command)]
    for number in range(nodes - 1):
        started.append(node_at(scratch, share, far.address, PORT + number * PORTS_EACH, far.command))
    drive = cheetah.create(scratch, started, size, enter=lab.examiner.command)
    _, raw = cheetah.mount(scratch, drive, writable=True, enter=lab.examiner.command)
    return ext4_on(scratch, raw)


def node_at(scratch: Scratch, share_bytes: int, address: str, port: int, enter: verbs.Enter) -> verbs.Node:
    """Starts a node at an address and a port of a machine; the next node there has the port after the next."""
    argv = ["node", "--memory", iec(verbs.lent(share_bytes)), "--name", scratch.unique("node")]
    argv += ["--listen", f"{address}:{port}", "--insecure", "--no-announce"]
    process, ready = cheetah.serve(scratch, "cheetah node", argv, enter)
    return verbs.Node(process, ready["nbd"], ready["http"], ready["lent_bytes"])
