"""Made-up results of a run of `cheetah bench`, the same at every call."""

import random
from typing import Any

from cheetah.bench.figure import Figure
from cheetah.bench.results import FORMAT
from cheetah.bench.storage.sample import Outcome, Sample
from cheetah.bench.units import GIB, MIB

Json = dict[str, Any]

TARGETS = ("disk", "ram:linear@2", "ram:stripe:64KiB@3", "ram:stripe:64KiB:ext4@node1:10809,node2:10809")
# Seconds on the disk, and the speed-up of each target.
STEPS: dict[str, tuple[str, str, float, tuple[float, ...]]] = {
    "copy": ("copy", "cp", 354.1, (1, 1.62, 1.95, 1.68)),
    "md5sum": ("md5sum", "md5sum", 165.8, (1, 2.78, 3.19, 2.98)),
    "sha256sum": ("sha256sum", "sha256sum", 172.3, (1, 1.9, 2.1, 2.05)),
    "strings": ("strings", "strings", 1330.3, (1, 1.02, 1.19, 0.88)),
    "unallocated": ("extract unallocated", "blkls", 1340.2, (1, 2.04, 2.81, 1.41)),
    "foremost": ("foremost", "foremost", 1499.2, (1, 1.43, 1.53, 1.46)),
    "scalpel": ("scalpel", "scalpel", 901.4, (1, 1.2, 1.25, 1.21)),
    "tar": ("tar", "tar", 88.9, (1, 1.5, 1.8, 1.7)),
    "sorter": ("sorter", "sorter", 4021.7, (1, 1.005, 1.01, 0.99)),
}
OPERATIONS = ("write", "rewrite", "read", "reread", "random-read", "random-write", "backward", "strided")
FILES, RECORDS = ("16MiB", "64MiB"), ("4KiB", "64KiB", "1MiB")


def results(**changes: Any) -> Json:
    """Returns results.json; `changes` apply to its storage part."""
    return {
        "format": FORMAT,
        "finished": "2026-11-21T18:03:12+00:00",
        "machine": {
            "processor": "AMD EPYC, 2 processors, a virtual machine", "memory": "23.5 GiB", "kernel": "6.18.44",
            "python": "3.11.7", "fio": "fio-3.33", "The Sleuth Kit": "The Sleuth Kit ver 4.11.1", "cheetah": "cheetah 0.1.0",
        },
        "command": ["cheetah", "bench", "storage", "disk=/scratch", *TARGETS[1:], "--states", "cold,warm"],
        "parts": [storage(**changes), other()],
    }  # fmt: skip


def storage(
    targets: tuple[str, ...] = TARGETS, repetitions: int = 3, files: tuple[str, ...] = FILES,
    records: tuple[str, ...] = RECORDS, spoil: bool = True, **changes: Any,
) -> Json:  # fmt: skip
    """Returns the storage part. `spoil`: some of it failed, hung, was skipped or was not cold."""
    chance = random.Random(3)
    samples = [
        sample
        for number in range(1, repetitions + 1)
        for place, target in enumerate(targets)
        for sample in [
            *_timed(chance, target, place % 4, number),
            *_matrix(chance, target, place % 4, number, files, records),
        ]
    ]
    if spoil:
        samples = [_spoiled(sample) for sample in samples]
    cells = [(f"fio/{name}/{file}/{record}", f"{name.replace('-', ' ')}, {record} of {file}") for name in OPERATIONS
             for file in files for record in records]  # fmt: skip
    steps = [
        {"key": key, "title": title, "tool": tool, "version": f"{tool} 1.0"} for key, (title, tool, *_) in STEPS.items()
    ]
    steps += [{"key": key, "title": title, "tool": "fio", "version": "fio-3.33"} for key, title in cells]
    part = {
        "part": "storage", "title": "Which storage makes forensic work fast", "about": "The steps of an examiner.",
        "quick": False, "rounds": repetitions, "finished": "2026-11-21T18:03:12+00:00", "figures": figures(samples, targets[0] if targets else ""),
        "targets": [_target(name) for name in targets], "steps": steps,
        "samples": [sample.to_json() for sample in samples],
        "baseline": targets[0] if targets else "",
        "settings": {"image": "/evidence/nps-2009.raw", "image_bytes": 38 * GIB, "extent": "normal", "states": ["cold", "warm"]},
        "warnings": ["the machine's clock frequency was not fixed"] if spoil else [],
    }  # fmt: skip
    return part | changes


def figures(samples: list[Sample], baseline: str) -> list[Json]:
    """Returns the completed samples as figures."""
    found: dict[tuple[str, str], Figure] = {}
    for one in samples:
        if one.outcome is Outcome.DONE:
            rate = one.bytes_per_s is not None
            figure = found.setdefault((one.step, one.state), Figure(
                f"storage/{one.step}/{one.state}", one.step, "bytes/s" if rate else "s", None, {},
                "higher" if rate else "lower", baseline=baseline,
            ))  # fmt: skip
            figure.samples.setdefault(one.target, []).append((one.bytes_per_s if rate else one.seconds) or 0.0)
    return [figure.to_json() for figure in found.values()]


def other() -> Json:
    """Returns a part without samples: ours beside others."""
    met = Figure("drive/read", "1 MiB sequential read", "MiB/s", "cheetah",
                 {"cheetah": [3550.0, 3540.0, 3610.0], "nbdkit": [3040.0, 3010.0, 3100.0]}, bar=1.0)  # fmt: skip
    missed = Figure("drive/cpu", "CPU a request", "µs", "cheetah",
                    {"cheetah": [3.3, 3.4, 3.2], "nbdkit": [3.0, 3.1, 3.0], "qemu-nbd": [5.0, 5.1, 4.9]},
                    better="lower", bar=0.5, note="perf: the digest of every page")  # fmt: skip
    beside = Figure(
        "drive/layouts", "layouts", "s", None, {"linear": [2.0, 2.1], "stripe": [1.0, 1.1]}, "lower", baseline="linear"
    )
    return {
        "part": "drive", "title": "A striped drive over three nodes", "about": "Loopback all the way.", "quick": False,
        "rounds": 3, "finished": "2026-11-21T17:00:00+00:00", "figures": [one.to_json() for one in (met, missed, beside)],
    }  # fmt: skip


def _target(name: str) -> Json:
    if name == TARGETS[0]:
        return {"name": name, "about": {"directory": "/scratch", "file system": "ext4", "mount options": "rw,relatime",
                                        "device": "8:1", "read-ahead": "128 KiB", "free": "412 GiB"}}  # fmt: skip
    return {"name": name, "about": {"layout": "stripe", "unit": "64 KiB", "nodes": "127.0.0.1:10809, 127.0.0.1:10810",
                                    "file system": "ext4", "mount options": "rw,noatime", "read-ahead": "128 KiB"}}  # fmt: skip


def _timed(chance: random.Random, target: str, place: int, number: int) -> list[Sample]:
    made = []
    for key, (_, _, seconds, times) in STEPS.items():
        for state in ("cold", "warm") if key != "copy" else ("cold",):
            tool_s = seconds / times[place] * (0.8 if state == "warm" else 1) * chance.uniform(0.985, 1.02)
            flush_s = chance.uniform(0.1, 2)
            read = 38 * GIB
            made.append(Sample(
                target, key, state, number, Outcome.DONE, "", tool_s + flush_s, tool_s, flush_s, cpu_s=seconds * 0.4,
                memory_peak_bytes=chance.randrange(2, 80) * MIB, read_bytes=read, written_bytes=read // 9,
                device_read_bytes=read if state == "cold" else 0, device_written_bytes=read // 9,
                resident_share_before=0.0 if state == "cold" else 1.0,
                bottleneck="storage" if place == 0 else "processor (one)", busy={"tool": 0.41 if place == 0 else 0.97, "processors": 0.52, "device": 0.94 if place == 0 else 0.31, "io stalled": 0.2},
                harness_cpu_s=0.05, harness_bytes=4096,
            ))  # fmt: skip
    return made


def _matrix(
    chance: random.Random, target: str, place: int, number: int, files: tuple[str, ...], records: tuple[str, ...]
) -> list[Sample]:
    made = []
    for name in OPERATIONS:
        for file in files:
            for grade, record in enumerate(records):
                rate = (
                    (90 + 60 * place)
                    * MIB
                    * (1 + grade) ** 1.5
                    * chance.uniform(0.9, 1.1)
                    / (4 if "random" in name else 1)
                )
                made.append(Sample(
                    target, f"fio/{name}/{file}/{record}", "cold", number, Outcome.DONE, "", 2.0, 1.9, 0.1, cpu_s=0.2,
                    bytes_per_s=rate, resident_share_before=0.0,
                ))  # fmt: skip
    return made


def _spoiled(one: Sample) -> Sample:
    nothing = {name: None for name in ("seconds", "tool_s", "flush_s", "cpu_s", "memory_peak_bytes", "bytes_per_s")}
    if one.step == "scalpel" and one.target == TARGETS[1]:
        said = "scalpel was not done after 3600 s, and was ended; --step-limit allows more"
        return Sample(**(one.to_json() | nothing | {"outcome": Outcome.HUNG, "problem": said}))
    if one.step == "sorter" and one.target != TARGETS[0]:
        said = "sorter is not installed (Debian: sleuthkit)"
        return Sample(**(one.to_json() | nothing | {"outcome": Outcome.SKIPPED, "problem": said}))
    if one.step == "tar" and one.target == TARGETS[3] and one.repetition == 2:
        said = "tar: exit code 2: tar: image.tar: Cannot write: No space left on device"
        return Sample(**(one.to_json() | nothing | {"outcome": Outcome.FAILED, "problem": said}))
    if one.step == "md5sum" and one.target == TARGETS[2] and one.state == "cold":
        said = f"not cold: {12 + one.repetition} % of the image was in memory"
        return Sample(**(one.to_json() | {"resident_share_before": 0.12 + one.repetition / 100, "warnings": (said,)}))
    if one.step.startswith("fio/reread") and one.target == TARGETS[3]:
        return Sample(
            **(one.to_json() | {"warnings": ("the target does not support direct I/O: this is read from memory",)})
        )
    return one
