"""Redundant drives over nodes behind links of 1 Gbit/s, beside iperf3's throughput over these links,
and their repair."""

import json
import os
import threading
import time
from typing import Any

from bench.harness.figures import Metric, from_rounds
from bench.harness.fio import Job
from bench.harness.rounds import interleave
from bench.scratch import Scratch, write_random
from bench.settings import Settings
from bench.survive import drives
from bench.survive.drives import MIRROR, Layout
from bench.tools import cheetah, iperf
from cheetah.bench.figure import Figure
from cheetah.bench.process import run
from cheetah.bench.units import GIB, MIB, iec
from lab.network import Lab

RATE = "1gbit"
DEPTH = 16
WIDE = Layout("parity 4+1", ("--layout", "parity", "--parity", "1"), 5, 4)
RATE_METRIC = (Metric("rate", "", "MiB/s", "higher", 0.97),)
REPAIR_BAR, LOADED_BAR, FOREGROUND_BAR = 0.8, 0.2, 0.7


def one_pass(scratch: Scratch, lab: Lab, drive: str, rw: str, size_bytes: int) -> dict[str, float]:
    """Returns MiB/s of one pass over the drive through a fresh export on the examiner's machine."""
    with scratch.child() as turn:
        server = cheetah.export(turn, drive, writable=rw == "write", tcp=False, enter=lab.examiner.command)
        return server.measure(Job(rw, MIB, size_bytes, DEPTH))


class Setup:
    """A drive over one node behind each link."""

    def __init__(self, scratch: Scratch, lab: Lab, layout: Layout, size_bytes: int) -> None:
        self.scratch, self.lab, self.layout, self.size_bytes = scratch, lab, layout, size_bytes
        self.nodes = [self.start_node(number) for number in range(layout.nodes)]
        image = write_random(os.path.join(scratch.ram_dir, "pattern"), size_bytes)
        self.drive = drives.create(scratch, layout, self.nodes, image, lab.examiner.command)
        os.remove(image)
        iperf.start_servers(scratch, lab)
        print(f"survive: {layout.name} behind {RATE} each, a drive of {iec(size_bytes)}", flush=True)

    def start_node(self, number: int) -> Any:
        """Starts an empty node behind a link, counted from 0."""
        machine = self.lab.nodes[number]
        share_bytes = self.layout.share_bytes(self.size_bytes)
        node = cheetah.node(self.scratch, share_bytes, machine.address, machine.command)
        # Its control port is reachable only on its own machine.
        status = machine.command(["curl", "--silent", "--noproxy", "*", f"http://{node.http}/v1/status"])

        def is_ready() -> bool:
            memory = json.loads(run(status))["memory"]
            return bool(memory["ready_bytes"] == memory["lent_bytes"])

        node.process.wait_until(is_ready, "memory faulted in")
        return node

    def rate(self, rw: str, links: int, settings: Settings) -> list[Figure]:
        """Compares one pass with the throughput of this many links."""
        name, carried = self.layout.name, f"{links} × iperf3"
        seconds = 1 if settings.quick else 2

        def links_rate() -> dict[str, float]:
            return {"rate": links * iperf.link_rate(self.lab, self.lab.nodes[1], rw == "read", seconds)}

        lost = sum(node.process.has_ended for node in self.nodes)
        degraded = " with a node lost" if lost else ""
        what = f"{name}, 1 Gbit/s links: sequential {rw}{degraded}"
        turns = {
            name: lambda: one_pass(self.scratch, self.lab, self.drive, rw, self.size_bytes),
            carried: links_rate,
        }
        results = interleave(what, settings.rounds, turns)
        key = f"survive-links/{name.replace(' ', '-')}-{rw}{'-degraded' if lost else ''}"
        return from_rounds(key, what, name, RATE_METRIC, results)

    def lose(self, number: int) -> None:
        """Kills a node."""
        drives.kill(self.nodes[number])
        self.nodes[number].process.wait_until(lambda: True, "end")
        while not self.nodes[number].process.has_ended:
            time.sleep(0.01)

    def repair(self, number: int) -> float:
        """Starts an empty node in the place of a lost one, and repairs the drive onto it; returns the MiB/s that it
        received."""
        self.nodes[number] = self.start_node(number)
        started = time.monotonic()
        cheetah.call(["repair", self.drive, "--nodes", self.nodes[number].nbd], self.lab.examiner.command)
        return self.size_bytes / self.layout.data_nodes / MIB / (time.monotonic() - started)


def measure_repair(setup: Setup, settings: Settings) -> list[Figure]:
    """Measures the repair of a lost node onto an empty one, idle and while the drive is read."""
    victim = 0
    idle: dict[str, list[float]] = {"cheetah repair": [], "iperf3": []}
    loaded: dict[str, list[float]] = {"cheetah repair": [], "iperf3": []}
    reading: dict[str, list[float]] = {"during the repair": [], "undisturbed": []}
    job = Job("read", MIB, setup.size_bytes, DEPTH, runtime_s=1)
    for _ in range(settings.rounds):
        link = iperf.link_rate(setup.lab, setup.lab.nodes[victim], False, 1)
        setup.lose(victim)
        idle["cheetah repair"].append(setup.repair(victim))
        idle["iperf3"].append(link)
        setup.lose(victim)
        with setup.scratch.child() as turn:
            server = cheetah.export(turn, setup.drive, tcp=False, enter=setup.lab.examiner.command)
            reading["undisturbed"].append(server.measure(job)["rate"])
            done: list[float] = []
            repairing = threading.Thread(target=lambda done=done: done.append(setup.repair(victim)))
            # The new node's memory is faulted in before the repair begins.
            repairing.start()
            rates = []
            while repairing.is_alive():
                began = time.monotonic()
                rate = server.measure(job)["rate"]
                if repairing.is_alive():
                    rates.append((rate, began))
            repairing.join()
        if done and rates:
            loaded["cheetah repair"].append(done[0])
            loaded["iperf3"].append(link)
            # The first begins before the repair does.
            counted = [rate for rate, _ in rates[1:]] or [rate for rate, _ in rates]
            reading["during the repair"].append(sum(counted) / len(counted))
    idle, loaded, reading = ({key: values for key, values in one.items() if values} for one in (idle, loaded, reading))
    name = setup.layout.name
    print(f"  repair idle {idle}\n  repair under load {loaded}\n  reading {reading}", flush=True)
    return [
        Figure(
            "survive-links/repair",
            f"{name}: repair, idle, of what the new node's link carries",
            "MiB/s",
            "cheetah repair",
            idle,
            "higher",
            REPAIR_BAR,
        ),
        Figure(
            "survive-links/repair-loaded",
            f"{name}: repair while the drive is read at depth {DEPTH}",
            "MiB/s",
            "cheetah repair",
            loaded,
            "higher",
            LOADED_BAR,
        ),
        Figure(
            "survive-links/read-during-repair",
            f"{name}: that reading",
            "MiB/s",
            "during the repair",
            reading,
            "higher",
            FOREGROUND_BAR,
        ),
    ]


def measure(settings: Settings) -> list[Figure]:
    """Measures the part."""
    size_bytes = 64 * MIB if settings.quick else GIB // 2
    figures = []
    with Scratch() as scratch, Lab(MIRROR.nodes, RATE) as lab:
        figures += Setup(scratch, lab, MIRROR, size_bytes).rate("read", 2, settings)
    with Scratch() as scratch, Lab(WIDE.nodes, RATE) as lab:
        setup = Setup(scratch, lab, WIDE, 4 * size_bytes)
        figures += setup.rate("read", 5, settings)
        figures += setup.rate("write", 4, settings)
        setup.lose(0)
        figures += setup.rate("read", 4, settings)
        setup.repair(0)
        figures += measure_repair(setup, settings)
    return figures
