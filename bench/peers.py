"""Whom Cheetah is measured against."""

import os

from bench.endpoint import Endpoint
from bench.process import answers, free_port


def nbdkit_memory(scratch, size_bytes, name="nbdkit memory"):
    """nbdkit's memory plugin with its default threads, on loopback TCP."""
    port = free_port()
    argv = ["nbdkit", "--foreground", "--exit-with-parent", "--newstyle", "--ipaddr=127.0.0.1", f"--port={port}"]
    process = scratch.start(name, [*argv, "memory", str(size_bytes)])
    process.wait_until(lambda: answers(port), "answer on its port")
    return Endpoint(name, f"nbd://127.0.0.1:{port}", [process])


def qemu_nbd(scratch, size_bytes):
    """qemu-nbd on a raw file in tmpfs, which knows no O_DIRECT, hence --cache=writeback."""
    name, port = "qemu-nbd on tmpfs", free_port()
    path = os.path.join(scratch.ram_dir, scratch.unique("qemu.raw"))
    with open(path, "wb") as file:
        file.truncate(size_bytes)
    argv = ["qemu-nbd", "--format=raw", "--cache=writeback", "--shared=16", "--persistent", "--bind=127.0.0.1"]
    process = scratch.start(name, [*argv, f"--port={port}", path])
    process.wait_until(lambda: answers(port), "answer on its port")
    return Endpoint(name, f"nbd://127.0.0.1:{port}", [process])


def nbdkit_nbd(scratch, behind):
    """`nbdkit nbd`, an NBD server in front of another one."""
    name, port = "nbdkit nbd on nbdkit memory", free_port()
    argv = ["nbdkit", "--foreground", "--exit-with-parent", "--ipaddr=127.0.0.1", f"--port={port}"]
    process = scratch.start(name, [*argv, "nbd", f"uri={behind.uri}"])
    process.wait_until(lambda: answers(port), "answer on its port")
    return Endpoint(name, f"nbd://127.0.0.1:{port}", [process])


def nbdfuse(scratch, behind):
    """An NBD server as a file through nbdfuse; returns the process and the file's path."""
    directory = scratch.make_dir("nbdfuse")
    path = os.path.join(directory, "disk.raw")
    process = scratch.start("nbdfuse on nbdkit memory", ["nbdfuse", path, behind.uri])
    process.wait_until(lambda: os.path.exists(path), "file in its mount")
    return process, path
