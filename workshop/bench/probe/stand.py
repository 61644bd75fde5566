"""The stand for measuring senders: two machines with a wire between them, and a receiver at its far end."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence

from bench.probe.trains import Arrivals, TrainRequest, read_arrivals
from bench.scratch import Scratch
from cheetah.bench.failure import BenchError
from cheetah.bench.process import run
from lab import crate, relay
from lab.namespace import Namespace
from lab.network import Lab

PORT = 40_000
INTERFACE = "wire0"
# How the judge is kept from waiting.
PLAIN, RPS, THREADED = "plain", "rps", "threaded"
JUDGES = {
    PLAIN: "arrivals are processed where they come",
    RPS: "the last processor processes arrivals (RPS); its ksoftirqd has SCHED_FIFO 45, and no sender runs there",
    THREADED: "a kernel thread with SCHED_FIFO 45 on the last processor processes arrivals (threaded NAPI), and no sender runs there",
}
SENDER, RECEIVER = "10.78.0.1", "10.78.0.2"
# Packets to this address arrive at the receiver's interface and are dropped there as another host's, so that the processor
# that sends them does not have to answer them in between.
SINK, SINK_MAC = "10.78.0.3", "02:00:00:00:00:03"


def packets_program() -> str:
    """Returns `workshop/bench/packets`, built if necessary."""
    return crate.build("bench-packets")


class Judge:
    """Reports when packets arrived at an interface; see `workshop/bench/packets/src/receive.rs`."""

    def __init__(self, machine: Namespace, interface: str, port: int = PORT) -> None:
        argv = ["setpriv", "--pdeathsig", "KILL", packets_program(), "receive", interface, str(port)]
        self._process = subprocess.Popen(
            machine.command(argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        if self._line() != "ready":
            raise BenchError(f"the receiver at {interface} did not start")

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def collect(self, ip_bytes: int) -> list[int]:
        """Returns when packets of that size arrived since the last call; lost counts are an error."""
        return self.arrivals(ip_bytes).arrived

    def arrivals(self, ip_bytes: int) -> Arrivals:
        """Returns the same, and when the kernel began to process them."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        lines = []
        while line := self._line():
            lines.append(line)
            if line.startswith("dropped"):
                break
        else:
            raise BenchError("the receiver has ended")
        found = read_arrivals(lines, ip_bytes)
        if found.dropped:
            raise BenchError(f"the receiver lost {found.dropped} packets")
        return found

    def stop(self) -> None:
        """Ends it."""
        self._process.kill()
        self._process.communicate()


class Stand:
    """A sending and a receiving machine with a veth pair between them, whose far end stamps packets on arrival. It
    stands in for a network card and a capture card on its wire."""

    def __init__(self, scratch: Scratch, lab: Lab, judged: str = PLAIN) -> None:
        self.scratch = scratch
        self.sender, self.receiver = lab.examiner, lab.nodes[0].namespace
        argv = ["ip", "link", "add", INTERFACE, "numtxqueues", "1", "type", "veth", "peer", "name", INTERFACE]
        self.sender.run([*argv, "netns", self.receiver.name])
        for machine, address in ((self.sender, SENDER), (self.receiver, RECEIVER)):
            machine.run(["ip", "address", "add", f"{address}/24", "dev", INTERFACE])
            machine.run(["ip", "link", "set", INTERFACE, "up"])
        self._beside = relay.beside_prefix() if judged != PLAIN else []
        isolate(self, judged)
        self.judge = Judge(self.receiver, INTERFACE)
        scratch.at_exit(self.judge.stop)
        self.sender.run(["ip", "neigh", "replace", SINK, "lladdr", SINK_MAC, "dev", INTERFACE])

    def enter(self, argv: Sequence[str]) -> list[str]:
        """Returns the command line that runs `argv` on the sending machine."""
        return self.sender.command([*self._beside, *argv])

    def program(self, way: str, asked: TrainRequest, interval_us: int = 1000) -> str:
        """Sends trains by `workshop/bench/packets`; returns its output."""
        numbers = (asked.ip_bytes, asked.packets, asked.gap_ns, asked.trains, interval_us)
        return str(run(self.enter([packets_program(), way, f"{SINK}:{PORT}", *map(str, numbers)]), 120))


def isolate(at: Stand, judged: str) -> None:
    """Keeps the processing of arrivals from waiting behind busy loops. Raises BenchError where that is not possible."""
    last = (os.cpu_count() or 1) - 1
    # The files of interfaces are those of a namespace only where sysfs was mounted in it.
    within = ["ip", "netns", "exec", at.receiver.name, "sh", "-c"]
    queue = f"/sys/class/net/{INTERFACE}"
    if judged == RPS:
        run([*within, f"echo {1 << last:x} > {queue}/queues/rx-0/rps_cpus"])
        thread = run(["pgrep", f"^ksoftirqd/{last}$"]).strip()
        at.scratch.at_exit(lambda: run(["chrt", "--other", "--pid", "0", thread]))
        run(["chrt", "--fifo", "--pid", "45", thread])
    elif judged == THREADED:
        # Where the sender's interface segments, packets that cannot be aggregated do not take the way of NAPI.
        at.sender.run(["ethtool", "-K", INTERFACE, "tso", "off"])
        at.receiver.run(["ethtool", "-K", INTERFACE, "gro", "on"])
        # The kernel refused it once, and took it the next time.
        run([*within, f"for try in 1 2 3 4; do echo 1 > {queue}/threaded && exit 0; sleep 0.5; done; exit 1"])
        for thread in run(["pgrep", f"^napi/{INTERFACE}-"]).split():
            run(["taskset", "--cpu-list", "--pid", str(last), thread])
            run(["chrt", "--fifo", "--pid", "45", thread])


@contextlib.contextmanager
def stand(judged: str = PLAIN) -> Iterator[Stand]:
    """Sets up a stand for the `with` block."""
    with Scratch() as scratch, Lab(1, None) as lab:
        yield Stand(scratch, lab, judged)


@contextlib.contextmanager
def burners(count: int | None = None) -> Iterator[None]:
    """Runs busy loops, one a processor by default."""
    argv = [sys.executable, "-S", "-c", "while True: pass"]
    with Scratch() as scratch:
        for _ in range(os.cpu_count() or 1 if count is None else count):
            scratch.start("burner", argv)
        yield
