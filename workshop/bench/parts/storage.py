"""Which storage makes forensic work fast: `cheetah bench storage` on this machine's disk and on drives over local
nodes and nodes behind links of 1 Gbit/s; then the cost of the harness, and its agreement with manual measurement."""

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.report.storage_tables import BASELINE, NETWORKS, RATE, kept
from bench.scratch import Scratch
from bench.settings import Settings as BenchSettings
from bench.tools import cheetah
from bench.tools.storage_checks import checks
from cheetah.bench import results
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.process import run
from cheetah.bench.storage.run import image
from cheetah.bench.storage.settings import Scope, Settings
from cheetah.bench.storage.steps import need_bytes, steps
from cheetah.bench.units import MIB
from cheetah.bench.verbs import Enter
from lab.network import Lab

BOTH, TOOLS = "tools and harness", "tools"
NODES = 3
# Name, layout and unit, nodes. One node cannot be striped.
DRIVES = (
    ("1 node", "linear", 1),
    ("linear, 2 nodes", "linear", 2),
    ("16KiB, 2 nodes", "stripe:16KiB", 2),
    ("64KiB, 2 nodes", "stripe:64KiB", 2),
    ("256KiB, 2 nodes", "stripe:256KiB", 2),
    ("linear, 3 nodes", "linear", 3),
    ("16KiB, 3 nodes", "stripe:16KiB", 3),
    ("64KiB, 3 nodes", "stripe:64KiB", 3),
    ("256KiB, 3 nodes", "stripe:256KiB", 3),
)
STEPS = ("copy", "md5sum", "strings", "unallocated", "foremost", "tsk_recover", "tar")
CELLS = ("fio/write/{}/1MiB", "fio/read/{}/1MiB", "fio/random-read/{}/4KiB")
ROUNDS_MAX = 3
LIMIT_S = 3600
SHARE_MARGIN_BYTES = 8 * MIB


def chosen_steps(quick: bool) -> str:
    """Returns the value of `--steps`."""
    return ",".join([*STEPS, *(cell.format("16MiB" if quick else "64MiB") for cell in CELLS)])


def settings_of(settings: BenchSettings, out: str) -> Settings:
    """Returns the settings of the harness; a quick run has a small image."""
    extent = Scope.QUICK if settings.quick else Scope.NORMAL
    return Settings((), "", Path(out), steps=tuple(chosen_steps(settings.quick).split(",")), extent=extent)


def measured(
    scratch: Scratch, settings: BenchSettings, source: Path, drives: Any, network: str, enter: Enter = list
) -> Any:
    """Runs `cheetah bench storage` on the disk and the drives, which are (name, target); returns the part of its
    results."""
    out = scratch.make_dir("out")
    argv = [sys.executable, "-m", "cheetah.bench", "storage", f"{BASELINE}={scratch.disk_dir}"]
    argv += [f"{name}={target}" for name, target in drives]
    argv += ["--image", str(source), "--steps", chosen_steps(settings.quick), "--out", out]
    repetitions = settings.rounds if settings.full else min(settings.rounds, ROUNDS_MAX)
    argv += ["--repetitions", str(repetitions), *(["--quick"] if settings.quick else [])]
    start = time.monotonic()
    print(f"storage, {network}: {1 + len(drives)} targets", flush=True)
    harness = scratch.start(f"cheetah bench storage, {network}", enter(argv))
    problem = ""
    try:
        harness.wait_end(LIMIT_S)
    except BenchError as error:
        problem = str(error)
    if not os.path.exists(os.path.join(out, results.JSON)):
        raise BenchError(problem or f"{harness.name} left no results: {harness.last_words()}")
    if problem:
        print(f"  {problem}", flush=True)
    part = results.read(Path(out)).part("storage") or {}
    part["elapsed_s"] = time.monotonic() - start
    print(f"  {len(part['samples'])} samples in {part['elapsed_s']:.0f} s", flush=True)
    path = kept(network)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(part, file, indent=1)
    return part


def over_loopback(scratch: Scratch, settings: BenchSettings, source: Path) -> Any:
    """Measures nodes on this machine, started by the harness."""
    drives = [(name, f"ram:{layout}@local:{count}") for name, layout, count in DRIVES]
    return measured(scratch, settings, source, drives, "loopback")


def over_links(scratch: Scratch, settings: BenchSettings, source: Path) -> Any:
    """Measures running nodes, each behind its own link, with the harness on the examiner's machine."""
    # A drive is larger than its content by its file system's overhead.
    need = need_bytes(settings_of(settings, scratch.dir), source.stat().st_size) * 11 // 10 + 64 * MIB
    with Lab(NODES, RATE) as lab, scratch.child() as turn:
        lent = [
            sum(need // count + SHARE_MARGIN_BYTES for _, _, count in DRIVES if number < count)
            for number in range(NODES)
        ]
        nodes = [
            cheetah.node(turn, share, node.address, node.command) for share, node in zip(lent, lab.nodes, strict=True)
        ]
        for node in nodes:
            wait_for_memory(lab, node)
        drives = [
            (name, f"ram:{layout}@{','.join(node.nbd for node in nodes[:count])}") for name, layout, count in DRIVES
        ]
        return measured(turn, settings, source, drives, RATE, lab.examiner.command)


def wait_for_memory(lab: Lab, node: Any) -> None:
    """Waits until the node's memory is faulted in. Its address is valid only inside the lab."""
    before, ready_bytes = None, -1
    while ready_bytes != before:
        before = ready_bytes
        time.sleep(0.5)
        answer = run(lab.examiner.command(["curl", "-sf", f"http://{node.http}/v1/status"]))
        ready_bytes = json.loads(answer)["memory"]["ready_bytes"]


def figures_of(part: Any, network: str) -> Iterator[Any]:
    """Yields the figures of a run: equal candidates beside a baseline."""
    for value in part["figures"]:
        figure = Figure.from_json(value)
        figure.id = figure.id.replace("storage/", f"storage/{network}/", 1)
        figure.what = f"{NETWORKS[network]}: {figure.what}"
        yield figure


def cost(parts: Any) -> list[Figure]:
    """Returns the harness's own usage while tools ran, relative to theirs; sums over a repetition."""
    figures = []
    for key, what, ours, theirs, unit in (
        ("cpu", "tools' time, and the processor time of the harness meanwhile", "harness_cpu_s", ("seconds",), "s"),
        (
            "bytes",
            "bytes that tools read and wrote, and the harness meanwhile",
            "harness_bytes",
            ("read_bytes", "written_bytes"),
            "bytes",
        ),
    ):
        samples: dict[str, list[float]] = {BOTH: [], TOOLS: []}
        for part in parts:
            done = [sample for sample in part["samples"] if sample["outcome"] == "done"]
            for repetition in sorted({sample["repetition"] for sample in done}):
                of_it = [sample for sample in done if sample["repetition"] == repetition]
                tools = sum(sample[name] or 0 for sample in of_it for name in theirs)
                samples[TOOLS].append(tools)
                samples[BOTH].append(tools + sum(sample[ours] for sample in of_it))
        figures.append(Figure(f"storage/cost/{key}", what, unit, BOTH, samples, "lower", 1.01))
    tools_s = [sum(sample["seconds"] or 0 for sample in part["samples"]) for part in parts]
    between_s = [part["elapsed_s"] - of_tools_s for part, of_tools_s in zip(parts, tools_s, strict=True)]
    what = "time of a run in which no tool ran: drives made and destroyed, caches dropped and looked at"
    between = {"harness": between_s, TOOLS: tools_s}
    figures.append(Figure("storage/cost/between", what, "s", "harness", between, "lower"))
    return figures


def measure(settings: BenchSettings) -> list[Figure]:
    """Measures the part; returns its figures."""
    with Scratch() as scratch:
        # In memory, so that reading it costs no target anything.
        source = image.get(settings_of(settings, scratch.ram_dir), lambda said: print(f"storage: {said}", flush=True))
        chosen = steps(settings_of(settings, scratch.dir))
        parts = {"loopback": over_loopback(scratch, settings, source), RATE: over_links(scratch, settings, source)}
        figures = [figure for network, part in parts.items() for figure in figures_of(part, network)]
        return [*cost(list(parts.values())), *checks(scratch, settings, source, chosen), *figures]
