"""Senders of trains: `cheetah probe`, plain programs, and other tools."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Sequence
from typing import Any

from bench.probe.stand import INTERFACE, PORT, RECEIVER, SENDER, SINK, SINK_MAC, Stand
from bench.probe.trains import SentTrain, TrainRequest, TrainResults, read_trains, split
from bench.tools import cheetah
from bench.tools.limited import run_limited
from cheetah.bench.failure import BenchError
from cheetah.bench.process import run

# Headers of IP and UDP.
HEADERS_BYTES = 28
LIMIT_S = 20.0
# Tools without trains send one long one, slow tools a shorter one.
TOOL_PACKETS_MAX = 2000
TOOL_SECONDS_MAX = 2.0

OURS = "cheetah probe"
SLEEP, SPIN, MMSG, SEQUENTIAL = "sendto + nanosleep", "spin + sendto", "sendmmsg", "sequential"

Sender = Callable[[Stand, TrainRequest], TrainResults]


def ours(*options: str) -> Sender:
    """Returns a sender that runs `cheetah probe --send` with these options."""

    def send(stand: Stand, asked: TrainRequest) -> TrainResults:
        stand.judge.collect(asked.ip_bytes)
        trains, done = sent_by(stand.enter(send_argv(asked, SINK, *options)))
        starts = [train["due_ns"][0] for train in trains]
        kept = [
            SentTrain(
                came, train["left_ns"], begun, train["verdict"] == "accepted", train.get("stalls_ns", {}).get("host")
            )
            for train, (came, begun) in zip(trains, _received(stand, asked, starts))
            if len(came) == asked.packets
        ]
        return TrainResults(kept, len(trains), done["backend"])

    return send


def _received(stand: Stand, asked: TrainRequest, starts: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Returns when the packets of each train arrived, and when the kernel began to process them (empty if unknown)."""
    found = stand.judge.arrivals(asked.ip_bytes)
    arrived, ingress = split(found.arrived, starts), split(found.ingress, starts)
    return [(came, begun if len(begun) == len(came) else []) for came, begun in zip(arrived, ingress)]


def send_argv(asked: TrainRequest, address: str, *options: str) -> list[str]:
    """Returns the command line that only sends."""
    pattern = f"train:{asked.packets}@{asked.gap_ns}ns"
    argv = [cheetah.binary(), "--json", "probe", address, "--send", pattern, "--port", str(PORT)]
    argv += ["--packet-bytes", str(asked.ip_bytes), "--repeat", str(asked.trains), "--interval", "2ms"]
    # Each train is sent once: spoiled ones count, too.
    argv += ["--again", "0"]
    # The default limits protect other people's networks.
    return [*argv, "--rate-max", "1000000", "--packets-max", "1000000", *options]


def sent_by(argv: Sequence[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Returns what `--send` reports of each train, and at the end. Discarded trains are no failure of the benchmark."""
    trains = []
    printed = run(argv, 120, check=False)
    for line in printed.splitlines():
        event = json.loads(line)
        if event.get("event") == "train":
            trains.append(event)
        elif event.get("event") == "done":
            return trains, event
    raise BenchError(f"{' '.join(argv)}: no trains were sent: {printed[-400:] or run(argv, 120)}")


def program(way: str) -> Sender:
    """Returns a sender that runs `workshop/bench/packets`, a minimal program."""

    def send(stand: Stand, asked: TrainRequest) -> TrainResults:
        stand.judge.collect(asked.ip_bytes)
        due, left, host_ns = read_trains(stand.program(way, asked))
        received = _received(stand, asked, [train[0] for train in due])
        kept = [
            SentTrain(came, departed, begun, host_ns=host)
            for (came, begun), departed, host in zip(received, left, host_ns)
            if len(came) == asked.packets
        ]
        return TrainResults(kept, len(due))

    return send


def tool(argv_of: Callable[[Stand, TrainRequest, int], list[str]]) -> Sender:
    """Returns a sender that runs a tool without trains: it sends the packets of all trains as one, up to a limit."""

    def send(stand: Stand, asked: TrainRequest) -> TrainResults:
        packets = min(asked.packets * asked.trains, TOOL_PACKETS_MAX)
        if asked.gap_ns:
            packets = min(packets, max(50, math.ceil(TOOL_SECONDS_MAX * 1e9 / asked.gap_ns)))
        stand.judge.collect(asked.ip_bytes)
        # Some wait for answers or fail because there are none; only arrivals count.
        try:
            run_limited(stand.enter(argv_of(stand, asked, packets)), LIMIT_S)
        except BenchError as error:
            if not (arrived := stand.judge.collect(asked.ip_bytes)):
                raise BenchError(f"nothing arrived: {error}") from None
        else:
            arrived = stand.judge.collect(asked.ip_bytes)
        if len(arrived) < 2:
            raise BenchError(f"{argv_of(stand, asked, packets)[0]}: {len(arrived)} packets arrived")
        return TrainResults([SentTrain(arrived)], 1)

    return send


def _trafgen(stand: Stand, asked: TrainRequest, packets: int) -> list[str]:
    payload = asked.ip_bytes - HEADERS_BYTES
    frame = (
        f"{{ eth(da={SINK_MAC}), ipv4(sa={SENDER}, da={SINK}), udp(sp={PORT - 1}, dp={PORT}), fill(0, {payload}) }}\n"
    )
    path = stand.scratch.path("trafgen")
    with open(path, "w", encoding="ascii") as file:
        file.write(frame)
    argv = ["trafgen", "--dev", INTERFACE, "--conf", path, "--num", str(packets), "--cpus", "1", "--no-sock-mem"]
    return [*argv, "--gap", f"{asked.gap_ns}ns"] if asked.gap_ns else argv


def _mausezahn(_: Stand, asked: TrainRequest, packets: int) -> list[str]:
    argv = ["mausezahn", INTERFACE, "-q", "-c", str(packets), "-d", str(asked.gap_ns // 1000), "-b", SINK_MAC]
    argv += ["-A", SENDER, "-B", SINK, "-t", "udp", f"sp={PORT - 1},dp={PORT}"]
    return [*argv, "-p", str(asked.ip_bytes - HEADERS_BYTES)]


def _nping(_: Stand, asked: TrainRequest, packets: int) -> list[str]:
    rate = round(1e9 / asked.gap_ns) if asked.gap_ns else 1_000_000
    argv = ["nping", "--udp", "--quiet", "--no-capture", "--send-ip", "--dest-port", str(PORT), "--rate", str(rate)]
    return [*argv, "--count", str(packets), "--data-length", str(asked.ip_bytes - HEADERS_BYTES), SINK]


def _hping3(_: Stand, asked: TrainRequest, packets: int) -> list[str]:
    argv = ["hping3", "--udp", "--quiet", "--keep", "--destport", str(PORT), "--count", str(packets)]
    argv += ["--interval", f"u{max(1, asked.gap_ns // 1000)}", "--data", str(asked.ip_bytes - HEADERS_BYTES)]
    return [*argv, "--interface", INTERFACE, SINK]


def _iperf3(stand: Stand, asked: TrainRequest, packets: int) -> list[str]:
    """Needs the server of `serve_iperf3`."""
    payload = asked.ip_bytes - HEADERS_BYTES
    rate = round(payload * 8 * 1e9 / asked.gap_ns) if asked.gap_ns else 0
    argv = ["iperf3", "--client", RECEIVER, "--port", str(PORT), "--udp", "--bitrate", str(rate)]
    argv += ["--length", str(payload), "--pacing-timer", str(max(1, asked.gap_ns // 1000))]
    return [*argv, "--bytes", str(packets * payload)]


def serve_iperf3(stand: Stand) -> None:
    """Starts the iperf3 server."""
    argv = ["iperf3", "--server", "--forceflush", "--port", str(PORT)]
    process = stand.scratch.start("iperf3", stand.receiver.command(argv))
    process.wait_until(lambda: "listening" in process.printed(), "word that it listens")


TOOLS: dict[str, Sender] = {
    "trafgen": tool(_trafgen),
    "mausezahn": tool(_mausezahn),
    "nping": tool(_nping),
    "hping3": tool(_hping3),
    "iperf3": tool(_iperf3),
}
PROGRAMS: dict[str, Sender] = {
    SEQUENTIAL: program("raw"),
    SLEEP: program("sleep"),
    SPIN: program("spin"),
    MMSG: program("mmsg"),
}


def tools() -> dict[str, Sender]:
    """Returns the installed tools."""
    return {name: send for name, send in TOOLS.items() if shutil.which(name)}
