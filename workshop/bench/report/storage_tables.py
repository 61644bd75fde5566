"""The tables of the storage part: the harness's own, and speed-ups beside those of the article it follows."""

import json
import os
from typing import Any

from bench.report import markdown, store
from cheetah.bench.figure import Figure

BASELINE = "disk"
RATE = "1gbit"
NETWORKS = {"loopback": "nodes on this machine, over loopback", RATE: "nodes behind 1 Gbit/s each"}
MORE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "storage.md")

# "Disk I/O performance in forensics", 2009: speed-ups over a SATA disk with 7200 rpm, for an image of 38 GB.
THEIRS = (
    ("VelociRaptor, 10 000 turns a minute", (1.58, 1.55, 1.16, 2.25, 1.26)),
    ("RAID 5, 4 disks, 64 KiB", (1.62, 2.78, 1.18, 2.04, 1.43)),
    ("RAID 0, 4 disks, 16 KiB", (1.68, 2.98, 0.88, 1.41, 1.46)),
    ("RAID 0, 4 disks, 64 KiB", (1.95, 3.19, 1.19, 2.81, 1.53)),
    ("RAID 0, 4 disks, 256 KiB", (1.95, 2.87, 1.2, 2.89, 1.53)),
)
# Its times in seconds, the disk first.
THEIR_TIMES = (
    ("Seagate Barracuda, 7200 turns a minute", (692.04, 545.84, 1330.10, 1340.26, 1499.22)),
    (THEIRS[0][0], (437.39, 351.15, 1145.55, 596.50, 1191.39)),
    (THEIRS[1][0], (427.87, 196.14, 1128.67, 656.68, 1051.51)),
    (THEIRS[2][0], (411.30, 183.19, 1512.22, 953.91, 1028.97)),
    (THEIRS[3][0], (354.13, 171.05, 1118.35, 477.76, 952.57)),
    (THEIRS[4][0], (355.32, 189.99, 1105.49, 463.80, 976.71)),
)
STEPS = ("copy", "md5sum", "strings", "unallocated", "foremost")


def kept(network: str) -> str:
    """Returns where the complete measurements over a network are kept."""
    return os.path.join(store.Folder.path, "storage", f"{network}.json")


def report(figures: list[Figure]) -> list[str]:
    """Returns all tables of the harness, the comparison, and the conclusions, which are written by hand."""
    lines = []
    for network, title in NETWORKS.items():
        try:
            with open(kept(network), encoding="utf-8") as file:
                part = json.load(file)
        except FileNotFoundError:
            continue
        lines += [f"### This machine's disk, and {title}", "", *markdown.tables(part)]
    lines += beside(figures)
    if os.path.exists(MORE):
        with open(MORE, encoding="utf-8") as file:
            lines += [*file.read().rstrip().split("\n"), ""]
    return lines


def beside(figures: list[Figure]) -> Any:
    """Returns speed-ups of the same five steps: the article's over its baseline, and ours over this machine's disk."""
    lines = ["### Speed-ups beside those of 2009", ""]
    lines += [f"| | {' | '.join(STEPS)} |", "|---" + "|---:" * len(STEPS) + "|"]
    lines += [f"| 2009: {name} | {' | '.join(f'{ratio:.2f}' for ratio in ratios)} |" for name, ratios in THEIRS]
    by_id = {figure.id: figure for figure in figures}
    for network, title in NETWORKS.items():
        columns = [by_id.get(f"storage/{network}/{step}/cold") for step in STEPS]
        names = dict.fromkeys(name for figure in columns if figure for name in figure.samples)
        for name in names:
            if name == BASELINE:
                continue
            ratios = [figure.speed_up(name) if figure else None for figure in columns]
            cells = " | ".join("" if ratio is None else f"{ratio:.2f}" for ratio in ratios)
            lines.append(f"| {name}; {title} | {cells} |")
    return [*lines, ""]
