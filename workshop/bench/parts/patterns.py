"""Backward, strided and interleaved reading over links of 1 Gbit/s with a round trip, against reading forward."""

import os
import sys
from typing import Any

from bench.harness.figures import Metric, from_rounds
from bench.harness.fio import Job
from bench.harness.rounds import interleave
from bench.parts.links import RATE, drive_over
from bench.scratch import Scratch, drop_caches, write_random
from bench.settings import Settings
from bench.tools import cheetah, pattern
from cheetah.bench.figure import Figure
from cheetah.bench.process import run
from cheetah.bench.units import KIB, MIB, iec
from lab import echo
from lab.network import Lab

# Added to this machine's own scheduling latency, for a total of about 0.3 ms; the report has the measured value.
RTT_ADDED = "0.15ms"
COUNTS = (1, 2)
BAR = 0.9
RECORD_BYTES = 4 * KIB
FETCHES_BYTES = (4 * KIB, 8 * KIB, 16 * KIB, 64 * KIB)
OURS = "cheetah mount"

# id, what, pattern, record. The Sleuth Kit reads 64 KiB at a time; the thesis measured with 4 KiB.
WORKLOADS = (
    ("backward-64k", "backward, 64 KiB records", "backward", 64 * KIB),
    ("backward-4k", "backward, 4 KiB records", "backward", 4 * KIB),
    ("interleaved-64k", "eight streams, 64 KiB records", "interleaved", 64 * KIB),
    ("interleaved-4k", "eight streams, 4 KiB records", "interleaved", 4 * KIB),
)

STRIDED_NOTE = (
    "**Strided** is 4 KiB every 200 KiB, 2 % of the bytes. It can be had by fetching f bytes for each record of 4 KiB, "
    "of which 4 KiB ÷ f are useful. The peer is the best of these for f = 4, 8, 16 and 64 KiB: what the same drive "
    "delivers forward over the same links through its export in requests of f bytes, 32 under way at once, times "
    "4 KiB ÷ f. No policy that fetches at least the record can beat the best f by more than noise."
)


def round_trip_us(scratch: Scratch, lab: Lab) -> Any:
    """Returns the median round trip of one byte over TCP between the examiner and the first node."""
    node = lab.nodes[0]
    server = scratch.start("echo", node.command([sys.executable, echo.__file__, "serve", node.address, "7"]))
    server.wait_until(lambda: "ready" in server.printed(), "word that it listens")
    return float(run(lab.examiner.command([sys.executable, echo.__file__, "ask", node.address, "7"])))


def cold(scratch: Scratch, lab: Lab, drive: str, name: str, record_bytes: int, size_bytes: int) -> dict[str, Any]:
    """Mounts afresh and reads the pattern; returns MiB/s."""
    with scratch.child() as turn:
        _, path = cheetah.mount(turn, drive, enter=lab.examiner.command)
        drop_caches()
        return {"rate": pattern.read(path, name, record_bytes, size_bytes)}


def useful_share(scratch: Scratch, lab: Lab, drive: str, settings: Settings, size_bytes: int) -> dict[str, Any]:
    """Returns the most useful bytes per second with any fetch size; see STRIDED_NOTE."""
    best = 0.0
    for fetch_bytes in FETCHES_BYTES:
        with scratch.child() as turn:
            server = cheetah.export(turn, drive, tcp=False, enter=lab.examiner.command)
            job = Job("read", fetch_bytes, size_bytes, 32, runtime_s=settings.runtime_s / 2, loops=False)
            best = max(best, server.measure(job)["rate"] * RECORD_BYTES / fetch_bytes)
    return {"rate": best}


def measure_count(settings: Settings, count: int) -> list[Figure]:
    """Returns the figures for that many nodes."""
    size_bytes, read_bytes = (128 * MIB, 32 * MIB) if settings.quick else (2048 * MIB, 512 * MIB)
    figures = []
    with Scratch() as scratch, Lab(count, RATE, RTT_ADDED) as lab:
        image = write_random(os.path.join(scratch.ram_dir, "pattern"), size_bytes)
        drive = drive_over(scratch, lab, size_bytes, image)
        os.remove(image)
        rtt_us = round_trip_us(scratch, lab)
        label = f"{count} {'link' if count == 1 else 'links'}"
        print(f"patterns: {label}, {rtt_us:.0f} µs of round trip, a drive of {iec(size_bytes)}", flush=True)

        note = f"Round trip of one byte by TCP over {label}, nothing else going on: {rtt_us:.0f} µs."
        for key, what, name, record_bytes in WORKLOADS:
            turns = {
                OURS: lambda name=name, size=record_bytes: cold(scratch, lab, drive, name, size, read_bytes),
                "forward": lambda size=record_bytes: cold(scratch, lab, drive, "forward", size, read_bytes),
            }
            figures += _judge(key, count, f"{label}: {what}", turns, settings, note)
        turns = {
            OURS: lambda: cold(scratch, lab, drive, "strided", RECORD_BYTES, size_bytes),
            "useful share of forward": lambda: useful_share(scratch, lab, drive, settings, size_bytes),
        }
        what = f"{label}: strided, 4 KiB every 200 KiB"
        figures += _judge("strided-4k", count, what, turns, settings, STRIDED_NOTE)
    return figures


def _judge(key: str, count: int, what: str, turns: Any, settings: Settings, note: Any) -> Any:
    results = interleave(what, settings.rounds, turns)
    metrics = (Metric("rate", "", "MiB/s", "higher", BAR, note),)
    return from_rounds(f"patterns/{key}-{count}", what, OURS, metrics, results)


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures."""
    return [figure for count in COUNTS for figure in measure_count(settings, count)]
