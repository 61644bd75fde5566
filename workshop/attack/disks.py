"""Disks that are full: where the record of a sealed drive is, where an image is acquired to, where a drive file is."""

import contextlib
import errno
import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from attack.stage import Broken, Server, Skipped, Stage
from attack.survival import write
from attack.wire import FLUSH, READ, Client

BLOCK = 4096
BLOCKS = 1024
"""The blocks of a sealed drive."""


def sealed_writer(stage: Stage) -> None:
    """Fills the disk of a sealed drive's record while the drive is written. Writes are refused or kept, and reads are right.
    With space again, the same writer goes on, and everything that it acknowledged is there after it has stopped."""
    identity = stage.path(".key")
    stage.must("drive", "identity", identity)
    with stage.node("file") as one, stage.node("file") as other, _small(stage, "2m") as folder:
        drive = folder / "k.drive"
        nodes = f"{one.ready['nbd']},{other.ready['nbd']}"
        size = str(BLOCKS * BLOCK)
        stage.must(
            "create", drive, "--nodes", nodes, "--layout", "stripe", "--seal", "--size", size, "--identity", identity
        )
        held = [{0} for _ in range(BLOCKS)]
        with _exported(stage, drive, identity, "--writable") as client:
            _write(client, held, 1, BLOCKS // 2)
            _must_flush(client, "with space")
            for turn in range(stage.times(2, 10)):
                ballast = _fill(folder, turn % 4 * BLOCK)
                _write_full(client, held, 2 * turn + 2)
                ballast.unlink()
                _write(client, held, 2 * turn + 3, BLOCKS // 4)
                _must_flush(client, "with space again")
                _compare(client, held, "with space again")
        with _exported(stage, drive, identity) as client:
            _compare(client, held, "after the writer has stopped")


def acquisition(stage: Stage) -> None:
    """Acquires to a disk that is full at once, or after some blocks. The same command goes on when there is space, and the
    image is whole."""
    source = stage.path(".img")
    source.write_bytes(stage.content[: 4 << 20])
    frees = [0, 1, 2, 3, 256] if stage.quick else [*range(12), 64, 256, 700]
    for name in ("x.E01", "x.raw"):
        for free in frees:
            with _small(stage, "10m") as folder:
                words = ("acquire", source, folder / name, "--level", "none", "--hash", "md5")
                ballast = _fill(folder, free * BLOCK)
                _must_fail(stage, *words)
                if left := [path.name for path in folder.iterdir() if path != ballast]:
                    raise Broken(f"an acquisition that does not fit has written {left}")
                _must_fail(stage, *words, "--skip-space-check")
                ballast.unlink()
                stage.must(*words, "--skip-space-check")
                copy = stage.path(".raw")
                stage.must("acquire", folder / name, copy, "--hash", "md5")
                if copy.read_bytes() != source.read_bytes():
                    raise Broken(f"{name} holds other bytes, after {free} blocks were free")


def destruction(stage: Stage) -> None:
    """Destroys drives whose files are on a full disk: the node is wiped all the same."""
    image, passphrase = stage.path(".img"), stage.path(".pass")
    image.write_bytes(stage.content[: 1 << 20])
    passphrase.write_text("a passphrase\n")
    for seal in ((), ("--seal", "--passphrase-file", passphrase)):
        with stage.node("file") as node, _small(stage, "64k") as folder:
            drive = folder / "a.drive"
            stage.must("create", drive, "--nodes", node.ready["nbd"], "--from", image, *seal)
            _fill(folder, 0)
            said = json.loads(stage.must("--json", "destroy", drive).splitlines()[0])
            if said["key_destroyed"] != bool(seal):
                raise Broken(f"the key on a full disk: {said}")
            if used := _used(node):
                raise Broken(f"destroy on a full disk leaves {used} bytes at the node")
            if drive.exists():
                raise Broken("destroy on a full disk leaves the drive file")


@contextlib.contextmanager
def _small(stage: Stage, size: str) -> Iterator[Path]:
    """Mounts a file system of a given size."""
    folder = stage.path(".small")
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    if os.geteuid() != 0 or subprocess.run(words, capture_output=True, check=False).returncode != 0:
        raise Skipped("this user can mount no tmpfs")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def _fill(folder: Path, free: int) -> Path:
    """Fills a file system but for some bytes; returns the file that does."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        with contextlib.suppress(OSError):
            while file.write(bytes(BLOCK)) == BLOCK:
                pass
        file.truncate(max(0, file.tell() - free))
    return ballast


def _must_fail(stage: Stage, *words: str | Path) -> None:
    code, _, complaint = stage.run(*words)
    if code != 1 or "space" not in complaint:
        raise Broken(f"cheetah {' '.join(map(str, words))} on a full disk ended with {code}: {complaint.strip()}")


@contextlib.contextmanager
def _exported(stage: Stage, drive: Path, identity: Path, *more: str) -> Iterator[Client]:
    socket = stage.path(".sock")
    with stage.server("file", "export", drive, "--unix", socket, "--prefetch", "0", "--identity", identity, *more):
        with Client(str(socket)) as client:
            client.go("")
            yield client


def _write(client: Client, held: list[set[int]], value: int, count: int) -> None:
    """Writes the first blocks, each of which must be acknowledged."""
    for block in range(count):
        if error := write(client, block * BLOCK, bytes([value]) * BLOCK):
            raise Broken(f"a write with space fails with {error}")
        held[block] = {value}


def _write_full(client: Client, held: list[set[int]], value: int) -> None:
    """Writes every block while the disk is full. Each write is kept or refused, and reads are right."""
    refused = 0
    for block in range(BLOCKS):
        error = write(client, block * BLOCK, bytes([value]) * BLOCK)
        if error not in (0, errno.ENOSPC):
            raise Broken(f"a write on a full disk fails with {error}")
        # A refused write may have been begun.
        held[block] = held[block] | {value} if error else {value}
        refused += bool(error)
    error = _flush(client)
    if error not in (0, errno.ENOSPC):
        raise Broken(f"a flush on a full disk fails with {error}")
    if not error and not refused:
        raise Broken("the disk was not full")
    _compare(client, held, "on a full disk")


def _flush(client: Client) -> int:
    client.request(FLUSH, 0, 0)
    return client.reply()[0]


def _must_flush(client: Client, when: str) -> None:
    if error := _flush(client):
        raise Broken(f"a flush {when} fails with {error}")


def _compare(client: Client, held: list[set[int]], when: str) -> None:
    """Each block holds one of the values that it may."""
    for block, values in enumerate(held):
        client.request(READ, block * BLOCK, BLOCK)
        error, data = client.reply(BLOCK)
        if error:
            raise Broken(f"{when}, a read of block {block} fails with {error}")
        if data not in [bytes([value]) * BLOCK for value in values]:
            raise Broken(f"{when}, block {block} begins with {data[0]}, instead of {values}")
        # What was read once stays.
        values.intersection_update({data[0]})


def _used(node: Server) -> int:
    """Returns the bytes that a node holds or has reserved, 0 if there is no drive."""
    with urllib.request.urlopen(f"http://{node.ready['http']}/v1/status", timeout=60) as answer:
        memory = json.load(answer)["memory"]
    return int(memory["used_bytes"]) + int(memory["reserved_bytes"])
