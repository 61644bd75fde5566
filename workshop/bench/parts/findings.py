"""`cheetah triage --quick` over a slow, long link: the time until the first finding, and until everything is
listed."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import time
from collections.abc import Iterator

from bench.harness.rounds import interleave
from bench.images import examined
from bench.images.examined import ExaminedImage
from bench.images.site import Line, Site, resident_share
from bench.parts.triage import FILE_SYSTEMS
from bench.scratch import Scratch, drop_caches
from bench.settings import Settings
from bench.tools import cheetah
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.units import MIB

OURS = "cheetah triage --quick"
ALLOWED = "allowed"
LINE = Line("100mbit", 20)
FIRST_S_MAX = 3.0
ROUNDS_MAX = 3
LIMIT_S = 900.0
# Keywords that occur in files of any system.
KEYWORDS = ("password", "private key", "secret")


@dataclasses.dataclass
class EventTimes:
    """When each event was first reported, in seconds from the start of the command."""

    first_findings: float | None = None
    listed: float | None = None
    done: float | None = None
    listed_bytes: int = 0


def command(source: str, out: str, *options: str) -> list[str]:
    """Returns the command line of a triage, with the Python that has the package."""
    return ["env", *python_environment(), cheetah.binary(), "triage", source, "--out", out, "--json", *options]


def python_environment() -> list[str]:
    """Returns the Python that has the package: $CHEETAH_PYTHON, or the environment of the tests."""
    if os.environ.get("CHEETAH_PYTHON"):
        return []
    made = os.path.join(cheetah.ROOT, "target", "venv", "bin", "python")
    if not os.path.exists(made):
        raise BenchError("the Python package is not built: run `scripts/python-env --release`, or set $CHEETAH_PYTHON")
    return [f"CHEETAH_PYTHON={made}"]


def events(process: subprocess.Popen[str]) -> Iterator[tuple[float, dict[str, object]]]:
    """Yields progress events with their times, without the final summary."""
    assert process.stdout is not None
    for line in process.stdout:
        try:
            value = json.loads(line)
        except ValueError:
            continue
        event = value.get("progress") if isinstance(value, dict) else None
        if isinstance(event, dict):
            yield time.perf_counter(), event


def watch(argv: list[str], site: Site | None = None) -> EventTimes:
    """Runs a triage and records the times of its events."""
    sample = EventTimes()
    before_bytes = site.sent_bytes() if site else 0
    start = time.perf_counter()
    argv = ["timeout", f"{LIMIT_S:.0f}", "setpriv", "--pdeathsig", "TERM", *argv]
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        for when, event in events(process):
            if sample.first_findings is None and event.get("findings"):
                sample.first_findings = when - start
            # The listing is complete when ranking begins.
            if sample.listed is None and event.get("stage") == "ranking":
                sample.listed = when - start
                sample.listed_bytes = site.sent_bytes() - before_bytes if site else 0
        complaint = process.stderr.read() if process.stderr else ""
    if process.returncode != 0:
        raise BenchError(f"{' '.join(argv)}: exit status {process.returncode}: {complaint.strip()[-600:]}")
    sample.done = time.perf_counter() - start
    return sample


def one_turn(site: Site) -> dict[str, float]:
    """Runs a triage of the site from cold caches."""
    with Scratch() as turn:
        drop_caches()
        resident = resident_share(site.image.path)
        words = turn.path("keywords")
        with open(words, "w", encoding="utf-8") as file:
            file.write("".join(f"{word}\n" for word in KEYWORDS))
        options = ("--quick", "--keywords", words)
        sample = watch(site.enter(command(site.uri, os.path.join(turn.disk_dir, "out"), *options)), site)
        if sample.listed is None or sample.done is None:
            raise BenchError(f"{site.uri}: the triage sample nothing of its listing")
        # Without findings before the end, the end counts.
        return {
            "first": sample.first_findings or sample.done,
            "listed": sample.listed,
            "done": sample.done,
            "listed_mib": sample.listed_bytes / MIB,
            "resident": resident,
        }


def measure_image(image: ExaminedImage, settings: Settings) -> list[Figure]:
    """Returns the figures of one image."""
    rounds = min(settings.rounds, ROUNDS_MAX)
    with Scratch() as scratch, LINE.lab() as lab:
        site = Site(scratch, lab, image)
        what = f"{image.fs}, {image.lines} lines"
        sample = interleave(what, rounds, {OURS: lambda: one_turn(site)}, ("first", "listed", "done", "listed_mib"))[
            OURS
        ]
    listing_s_max = 2 * image.asked_bytes / LINE.bytes_per_s + 1
    note = (
        f"Over {LINE.name}. Allowed for the listing: 2 × metadata ÷ rate + 1 s, where metadata is what `fls -r -m /` "
        "reads of the local image, each byte counted once. Seconds count from the command."
    )

    def figure(key: str, said: str, allowed: float | None, unit: str = "s") -> Figure:
        samples = {OURS: [one[key] for one in sample]}
        if allowed is not None:
            samples[ALLOWED] = [allowed] * rounds
        bar = None if allowed is None or unit != "s" else 1.0
        return Figure(f"findings/{image.fs}/{key}", f"{what}: {said}", unit, OURS, samples, "lower", bar, note)

    return [
        figure("first", "first findings", FIRST_S_MAX),
        figure("listed", f"everything listed, of {image.asked_bytes / MIB:.1f} MiB of metadata", listing_s_max),
        figure("done", "the report is there", None),
        figure("listed_mib", "bytes over the link until then, beside the metadata", image.asked_bytes / MIB, "MiB"),
    ]


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures."""
    print(f"findings: the large images over {LINE.name}", flush=True)
    images = [examined.get(examined.kinds(fs, settings.quick)[1]) for fs in FILE_SYSTEMS]
    return [figure for image in images for figure in measure_image(image, settings)]
