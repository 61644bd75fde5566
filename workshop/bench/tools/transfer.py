"""A transfer of an image to another machine, by a pipe of stock tools or by `cheetah acquire`, timed until the
receiver has written all of it, flushed it to its disk and hashed it."""

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from bench.harness.process import free_port
from bench.scratch import Scratch
from bench.tools import cheetah, iperf
from cheetah.bench.failure import BenchError
from cheetah.bench.process import run
from cheetah.bench.units import MIB
from cheetah.bench.verbs import Enter
from lab.network import Lab

PORT = 10809
# An hour and a half: 10 GiB to a disk of 25 MB/s take seven minutes, by bzip2 twenty.
LIMIT_S = 5400.0


@dataclasses.dataclass(frozen=True)
class Pipe:
    """`pack IMAGE | nc` at one end, `nc | unpack | tee TARGET | md5sum` at the other; or `nc | write`, which is hashed only
    after its time was taken."""

    name: str
    pack: str
    unpack: str = "cat"
    write: str | None = None

    def receives(self, target: str) -> str:
        """Returns what the receiver does with the stream."""
        write = f"{self.unpack} | tee {target} | md5sum" if self.write is None else self.write.format(target=target)
        return f"{write} && sync {target}"


PIPES = (
    Pipe("dd bs=512 | nc", "dd bs=512 status=none if={image}"),
    Pipe("cat | nc", "cat {image}"),
    Pipe("dd bs=1M | nc", "dd bs=1M status=none if={image}"),
    Pipe("gzip | nc", "gzip -c {image}", "gzip -dc"),
    Pipe("bzip2 | nc", "bzip2 -c {image}", "bzip2 -dc"),
    Pipe("zstd -T0 | nc", "zstd -q -T0 -c {image}", "zstd -q -dc"),
)


@dataclasses.dataclass(frozen=True)
class TransferEnds:
    """Two machines with a link between them: how to run a command on each, and its address."""

    sender: Enter
    sender_address: str
    receiver: Enter
    receiver_address: str
    lab: Lab | None = None

    def sent_bytes(self) -> int | None:
        """Returns the bytes the sender's interface has sent so far; None on loopback. A super-frame that the interface
        segments counts with one header, so this is nearly payload, retransmissions included."""
        if self.lab is None:
            return None
        shown = json.loads(run(self.sender(["ip", "-json", "-statistics", "link", "show", "dev", "eth0"])))
        return int(shown[0]["stats64"]["tx"]["bytes"])

    def link_rate(self, seconds: float) -> dict[str, Any]:
        """Returns the rate of one TCP stream of iperf3 to the receiver: {"rate": MiB/s}."""
        assert self.lab is not None
        return {"rate": iperf.link_rate(self.lab, self.lab.nodes[0], True, seconds, omit_s=1)}

    def free_port(self) -> int:
        """Returns a free port."""
        return free_port() if self.lab is None else PORT


@contextlib.contextmanager
def ends(scratch: Scratch, rate: Any, rtt: Any) -> Iterator[Any]:
    """Yields a sender and a receiver: on one machine if `rate` is None, otherwise in a lab."""
    if rate is None:
        yield TransferEnds(list, "127.0.0.1", list, "127.0.0.1")
        return
    with Lab(1, rate, rtt) as lab:
        iperf.start_servers(scratch, lab)
        node = lab.nodes[0]
        yield TransferEnds(node.command, node.address, lab.examiner.command, lab.examiner_address, lab)


def _figures(image: Any, seconds: float, sent_before: Any, sent_after: Any, sender_s: float) -> Any:
    """Returns the figures of a transfer: `seconds` until the receiver's end, `sender` until the sender's."""
    sample = {"rate": image.size_bytes / MIB / seconds, "seconds": seconds, "sender": sender_s}
    if sent_before is not None:
        sample["wire"] = (sent_after - sent_before) / MIB / seconds
    return sample


def _check(name: str, image: Any, md5: Any) -> None:
    if md5 != image.md5:
        raise BenchError(f"{name}: the receiver's MD5 of {image.path} is {md5}, not {image.md5}")


def by_pipe(
    scratch: Scratch, between: Any, pipe: Pipe, image: Any, folder: str | None = None, sent_file: str | None = None
) -> Any:
    """Sends the image, or a file that unpacks to it, through the pipe into a folder, by default on this machine's disk."""
    with scratch.child() as turn:
        target = _target(turn, folder)
        port = between.free_port()
        receive = f"nc -d -l {between.receiver_address} {port} | {pipe.receives(target)}"
        receiver = turn.start(f"receiver of {pipe.name}", between.receiver(_shell(receive)))
        listening = between.receiver(["ss", "--no-header", "--listening", "--tcp", f"sport = :{port}"])
        receiver.wait_until(lambda: run(listening).strip(), "sign of listening")
        sent = between.sent_bytes()
        start = time.perf_counter()
        send = f"{pipe.pack.format(image=sent_file or image.path)} | nc -N {between.receiver_address} {port}"
        run(between.sender(_shell(send)), LIMIT_S)
        sender_s = time.perf_counter() - start
        receiver.wait_end(LIMIT_S)
        seconds, sent_after = time.perf_counter() - start, between.sent_bytes()
        _check(pipe.name, image, receiver.printed()[:32] if pipe.write is None else md5_of(target))
        return _figures(image, seconds, sent, sent_after, sender_s)


def _target(turn: Scratch, folder: str | None) -> str:
    """Returns where a turn receives the image: in a directory of its own, which is removed with all that is beside it."""
    directory = turn.disk_dir
    if folder is not None:
        directory = tempfile.mkdtemp(prefix="received-", dir=folder)
        turn.at_exit(shutil.rmtree, directory)
    return os.path.join(directory, "received.raw")


def md5_of(path: str) -> str:
    """Returns the MD5 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def _shell(line: Any) -> Any:
    return ["bash", "-c", f"set -o pipefail; {line}"]


def by_cheetah(
    scratch: Scratch, between: Any, method: str, image: Any, folder: str | None = None, sent_file: str | None = None
) -> Any:
    """Acquires the image from a running agent into a folder, by default on this machine's disk; `method` is the agent's
    compression. Both ends are done at the same time: the agent only answers. With `sent_file`, the agent serves the bytes of
    that file, which is the image compressed, under its name, and the receiver decompresses it."""
    with scratch.child() as turn:
        target = _target(turn, folder)
        address = f"{between.sender_address}:{between.free_port()}"
        name = os.path.basename(sent_file or "")
        served = [f"raw:{sent_file}", "--name", name] if sent_file else [image.path]
        cheetah.agent(turn, served[0], address, between.sender, served[1:])
        sent = between.sent_bytes()
        start = time.perf_counter()
        report = cheetah.acquire(f"nbd://{address}/{name}", target, "md5", ["--compress", method], between.receiver)
        seconds = time.perf_counter() - start
        _check(f"cheetah acquire --compress {method}", image, report["hashes"]["md5"])
        return _figures(image, seconds, sent, between.sent_bytes(), seconds)
