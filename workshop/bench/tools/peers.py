"""The peers that Cheetah is measured against."""

import os
import time
from collections.abc import Sequence
from typing import Any

from bench.harness.process import answers, free_port
from bench.scratch import Scratch
from bench.tools.endpoint import Endpoint
from cheetah.bench.process import run
from cheetah.bench.verbs import Enter


def nbdkit_memory(scratch: Scratch, size_bytes: int, name: str = "nbdkit memory") -> Endpoint:
    """Starts nbdkit's memory plugin with its default threads, on loopback TCP."""
    port = free_port()
    argv = ["nbdkit", "--foreground", "--exit-with-parent", "--newstyle", "--ipaddr=127.0.0.1", f"--port={port}"]
    process = scratch.start(name, [*argv, "memory", str(size_bytes)])
    process.wait_until(lambda: answers(port), "answer on its port")
    return Endpoint(name, f"nbd://127.0.0.1:{port}", [process])


LUKS = "nbdkit --filter=luks file"


def nbdkit_luks(scratch: Scratch, size_bytes: int) -> Endpoint:
    """Starts nbdkit's luks filter (AES-256-XTS, which authenticates nothing) over a file in tmpfs."""
    path = os.path.join(scratch.ram_dir, scratch.unique("disk.luks"))
    secret = "secret,id=s,data=benchmark"
    # qemu-img measures how fast it derives a key, and gives up if that takes no time: SHA-256 is too fast here.
    run(
        [
            "qemu-img",
            "create",
            "-q",
            "--object",
            secret,
            "-f",
            "luks",
            "-o",
            "key-secret=s,hash-alg=sha512,iter-time=10",
            path,
            str(size_bytes),
        ]
    )
    return nbdkit_luks_on(scratch, path, "benchmark")


def nbdkit_luks_on(scratch: Scratch, path: str, passphrase: str) -> Endpoint:
    """Starts nbdkit's luks filter over an existing volume."""
    port = free_port()
    argv = ["nbdkit", "--foreground", "--exit-with-parent", "--ipaddr=127.0.0.1", f"--port={port}", "--filter=luks"]
    process = scratch.start(LUKS, [*argv, "file", path, f"passphrase={passphrase}"])
    process.wait_until(lambda: answers(port), "answer on its port")
    return Endpoint(LUKS, f"nbd://127.0.0.1:{port}", [process])


def qemu_nbd(scratch: Scratch, size_bytes: int) -> Endpoint:
    """Starts qemu-nbd on a raw file in tmpfs, which lacks O_DIRECT, hence --cache=writeback."""
    name, port = "qemu-nbd on tmpfs", free_port()
    path = os.path.join(scratch.ram_dir, scratch.unique("qemu.raw"))
    with open(path, "wb") as file:
        file.truncate(size_bytes)
    argv = ["qemu-nbd", "--format=raw", "--cache=writeback", "--shared=16", "--persistent", "--bind=127.0.0.1"]
    process = scratch.start(name, [*argv, f"--port={port}", path])
    process.wait_until(lambda: answers(port), "answer on its port")
    return Endpoint(name, f"nbd://127.0.0.1:{port}", [process])


def nbdkit_nbd(scratch: Scratch, behind: Any) -> Endpoint:
    """Starts `nbdkit nbd`, an NBD server in front of another one."""
    name, port = "nbdkit nbd on nbdkit memory", free_port()
    argv = ["nbdkit", "--foreground", "--exit-with-parent", "--ipaddr=127.0.0.1", f"--port={port}"]
    process = scratch.start(name, [*argv, "nbd", f"uri={behind.uri}"])
    process.wait_until(lambda: answers(port), "answer on its port")
    return Endpoint(name, f"nbd://127.0.0.1:{port}", [process])


def nbdfuse(scratch: Scratch, behind: Any, enter: Enter = list, connections: int | None = None) -> Any:
    """Mounts an NBD server through nbdfuse, with its default or the given number of connections; returns the process
    and the file's path."""
    directory = scratch.make_dir("nbdfuse")
    path = os.path.join(directory, "disk.raw")
    argv = ["nbdfuse", *([f"--connections={connections}"] if connections else []), path, behind.uri]
    process = scratch.start(f"nbdfuse on {behind.name}", enter(argv))
    process.wait_until(lambda: os.path.exists(path), "file in its mount")
    return process, path


def nbdfuse_on_qemu(scratch: Scratch, uri: str, enter: Enter = list) -> Any:
    """Presents a source that qemu can read (iSCSI) as a file: qemu-nbd on a Unix socket, with nbdfuse on it. Returns
    the file's path."""
    socket = scratch.path("socket")
    argv = ["qemu-nbd", "--format=raw", "--read-only", "--persistent", "--shared=4", f"--socket={socket}", uri]
    process = scratch.start("qemu-nbd", enter(argv))
    process.wait_until(lambda: os.path.exists(socket), "socket")
    return nbdfuse(scratch, Endpoint("qemu-nbd", f"nbd+unix:///?socket={socket}", [process]), enter)[1]


def ewfmount(scratch: Scratch, image: Any) -> str:
    """Mounts an E01 through ewfmount; returns the file's path."""
    directory = scratch.make_dir("ewfmount")
    # With -v it stays in the foreground; it ignores SIGTERM, and ends when unmounted.
    process = scratch.start("ewfmount", ["ewfmount", "-v", image, directory])
    scratch.at_exit(unmount, directory)
    path = os.path.join(directory, "ewf1")
    process.wait_until(lambda: os.path.exists(path), "file in its mount")
    return path


def xmount(scratch: Scratch, image: Any, library: str) -> str:
    """Mounts an E01 through xmount, which daemonises; `library` is ewf (libewf) or aewf (its own, multi-threaded).
    Returns the file's path."""
    directory = scratch.make_dir("xmount")
    run(["xmount", "--in", library, image, "--out", "raw", directory])
    scratch.at_exit(unmount, directory)
    return os.path.join(directory, os.path.basename(image).rpartition(".")[0] + ".dd")


def unmount(directory: str) -> None:
    run(["umount", directory], check=False)
    # Its process takes a moment to end.
    for _ in range(100):
        if not os.path.ismount(directory):
            break
        time.sleep(0.02)


# The filter of nbdkit that does not announce that a client may open several connections, and its options.
ONE_CONNECTION: tuple[str, ...] = ("multi-conn",)
ONE_CONNECTION_OPTIONS: tuple[str, ...] = ("multi-conn-mode=disable",)


def nbdkit_file(
    scratch: Scratch,
    image: str,
    address: str,
    port: int,
    enter: Enter = list,
    filters: Sequence[str] = (),
    options: Sequence[str] = (),
) -> str:
    """Starts nbdkit's file plugin on a machine of a lab, read-only; returns the NBD URI."""
    argv = ["nbdkit", "--foreground", "--exit-with-parent", "--readonly", f"--ipaddr={address}", f"--port={port}"]
    argv += [f"--filter={name}" for name in filters]
    server = scratch.start("nbdkit file", enter([*argv, "file", image, *options]))
    listening = enter(["ss", "--no-header", "--listening", "--tcp", f"sport = :{port}"])
    server.wait_until(lambda: run(listening).strip(), "sign of listening")
    return f"nbd://{address}:{port}/"


def nbdkit_one(scratch: Scratch, image: str, address: str, port: int, enter: Enter = list) -> str:
    """The same, with a server that allows a client one connection only."""
    return nbdkit_file(scratch, image, address, port, enter, ONE_CONNECTION, ONE_CONNECTION_OPTIONS)


def tgtd(scratch: Scratch, image: Any, address: str, enter: Enter = list, writable: bool = False) -> str:
    """Starts a private tgtd that serves the image, read-only unless `writable`; returns the iSCSI URI of the logical
    unit."""
    target = "iqn.2026-11.org.example:bench"
    control = str(os.getpid() % 30000 + 1000)
    argv = ["tgtd", "--foreground", f"--control-port={control}", "--iscsi", f"portal={address}:3260"]
    process = scratch.start("tgtd", enter(argv))

    def admin(*argv: str, check: bool = True) -> str:
        return run(["tgtadm", "--control-port", control, "--lld", "iscsi", *argv], check=check)

    def end() -> None:
        admin("--op", "delete", "--mode", "target", "--tid", "1", "--force", check=False)
        run(["tgtadm", "--control-port", control, "--op", "delete", "--mode", "system"], check=False)

    listening = enter(["ss", "--no-header", "--listening", "--tcp", "sport = :3260"])
    process.wait_until(lambda: run(listening).strip(), "sign of listening")
    # While it has a target it ignores SIGTERM.
    scratch.at_exit(end)
    admin("--op", "new", "--mode", "target", "--tid", "1", "--targetname", target)
    unit = ["--mode", "logicalunit", "--tid", "1", "--lun", "1"]
    admin("--op", "new", *unit, "--backing-store", image)
    if not writable:
        admin("--op", "update", *unit, "--params", "readonly=1")
    admin("--op", "bind", "--mode", "target", "--tid", "1", "--initiator-address", "ALL")
    return f"iscsi://{address}:3260/{target}/1"
