"""The TCP throughput of a lab's links, measured by iperf3."""

import functools
import json
import math
import time
from typing import Any

from bench.scratch import Scratch
from cheetah.bench.failure import BenchError
from cheetah.bench.process import Process, run
from cheetah.bench.units import MIB
from lab.network import Lab

ATTEMPTS = 5


def start_servers(scratch: Scratch, lab: Lab) -> None:
    """Starts an iperf3 server on each node."""
    for node in lab.nodes:
        process = scratch.start("iperf3", node.command(["iperf3", "--server", "--forceflush"]))
        process.wait_until(functools.partial(_listens, process), "word that it listens")


def _listens(process: Process) -> bool:
    return "listening" in process.printed()


def link_rate(lab: Lab, node: Any, towards_examiner: bool, seconds: float, omit_s: float = 0) -> float:
    """Returns the MiB/s of one TCP stream over one node's otherwise idle link, without the first `omit_s` seconds."""
    argv = ["iperf3", "--client", node.address, "--json", f"--time={math.ceil(seconds)}", f"--omit={omit_s}"]
    argv += ["--reverse"] if towards_examiner else []
    # A server takes a moment to finish with the previous client.
    for _ in range(ATTEMPTS):
        answer = json.loads(run(lab.examiner.command(argv), check=False))
        if "sum_received" in answer.get("end", {}):
            return float(answer["end"]["sum_received"]["bits_per_second"]) / 8 / MIB
        time.sleep(0.5)
    raise BenchError(f"iperf3 to {node.address}: {answer.get('error', 'no result')}")


def sum_of_links(lab: Lab, towards_examiner: bool, seconds: float) -> dict[str, Any]:
    """Returns the sum over all links, measured one after the other."""
    return {"rate": sum(link_rate(lab, node, towards_examiner, seconds) for node in lab.nodes)}
