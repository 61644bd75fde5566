"""Runs the attacks: `python3 -m attack [NAME…]`. CHEETAH names the binary, ATTACK=quick makes it short."""

import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from attack import (
    acquisition,
    boundaries,
    clocks,
    custody,
    disks,
    files,
    finding,
    floods,
    images,
    kills,
    losses,
    nbd_lies,
    neighbour,
    partition,
    parts,
    proof,
    redirects,
    roles,
    rooms,
    seals,
    store_lies,
    survival,
    targets,
    web,
    web_lies,
)
from attack.stage import ROOT, STDERRS, Broken, Skipped, Stage, stage

ON_SERVERS: dict[str, Callable[[Stage, targets.Target], None]] = {
    "requests": boundaries.boundary_requests,
    "options": boundaries.options,
    "garbage": boundaries.garbage,
    "connections": floods.connections,
    "handshakes": floods.half_handshakes,
    "unread": floods.unread_pipelines,
}
WITH_STDERR: dict[str, Callable[[Stage, str], None]] = {"http": web.malformed, "losses": losses.lost_nodes}
ON_FILES: dict[str, Callable[[Stage], None]] = {
    "images": images.mutated_images,
    "drive-files": images.mutated_drive_files,
    "custody": custody.tampering,
    "proof, files exchanged": proof.exchanged,
    "proof, content planted": proof.planted,
    "proof, log cut back": proof.cut_log,
    "proof, forged receipt": proof.receipts,
    "parts": parts.parts,
    "links": parts.links,
    "pipes": parts.pipes,
    "cut-disks": parts.cut_disks,
    "memory": parts.memory,
    "liars, NBD": nbd_lies.lies,
    "liars, NBD extents": nbd_lies.extents,
    "liars, web": web_lies.lies,
    "liars, object store": store_lies.uploads,
    "room, names": rooms.names,
    "room, revoked in negotiation": rooms.negotiating,
    "room, roles": roles.roles,
    "seals, rolled back": seals.rolled_back,
    "redirections": redirects.redirections,
    "acquisition, forged journal": acquisition.forged_journal,
    "acquisition, foreign partial": acquisition.foreign_partial,
    "acquisition, changing source": acquisition.changing_source,
    "acquisition, forged fill": acquisition.forged_fill,
    "finding, spoofed announcements": finding.spoofed,
    "neighbour, idle memory": neighbour.idle_memory,
    "clocks": clocks.jumps,
    "disks, sealed writer": disks.sealed_writer,
    "disks, acquisition": disks.acquisition,
    "disks, destroy": disks.destruction,
    "files, other users": files.other_users,
    "files, saved over": files.saved_over,
    "kills, acquisitions": kills.acquisitions,
    "kills, saves": kills.saves,
    "kills, loads": kills.loads,
    "kills, creations": kills.creations,
    "kills, reservations": kills.reservations,
}


def attacks() -> Iterator[tuple[str, Callable[[Stage], None]]]:
    """Yields every attack with its name, as "requests node, closed pipe"."""
    for stderr in STDERRS:
        for server in targets.ALL:
            yield f"{server}, stderr: {stderr}", partial(_on_server, server=server, stderr=stderr)
        for name, attack in WITH_STDERR.items():
            yield f"{name}, stderr: {stderr}", _with(attack, stderr)
    for name, on_redundant in survival.ALL.items():
        for layout in survival.LAYOUTS:
            yield f"{name}, {layout}", _with_layout(on_redundant, layout)
    for name, apart in partition.ALL.items():
        for where, cut in partition.CUTS.items():
            yield f"partition, {where}, {name}", _across(apart, cut)
    yield from ON_FILES.items()


def _with(attack: Callable[[Stage, str], None], stderr: str) -> Callable[[Stage], None]:
    return lambda stage: attack(stage, stderr)


def _with_layout(attack: Callable[[Stage, str, str], None], layout: str) -> Callable[[Stage], None]:
    return lambda stage: attack(stage, "file", layout)


def _across(attack: Callable[[Stage, str, partition.Cut], None], cut: partition.Cut) -> Callable[[Stage], None]:
    return lambda stage: attack(stage, "file", cut)


def _on_server(stage: Stage, server: str, stderr: str) -> None:
    with targets.ALL[server](stage, stderr) as target:
        for name, attack in ON_SERVERS.items():
            try:
                attack(stage, target)
                target.check()
            except (Broken, OSError, EOFError) as error:
                raise Broken(f"{name}: {error if isinstance(error, Broken) else repr(error)}") from error


def main(only: list[str]) -> int:
    """Runs the attacks whose names contain one of these words, or all; returns the exit code."""
    binary = Path(os.environ.get("CHEETAH", ROOT / "target/static/cheetah")).absolute()
    if not binary.is_file():
        print(f"error: there is no {binary}; build it (make static), or name one in CHEETAH", file=sys.stderr)
        return 2
    _, files_max = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files_max, files_max))
    counts = {"held": 0, "skipped": 0, "BROKEN": 0}
    began = time.monotonic()
    with stage(binary, os.environ.get("ATTACK") == "quick") as here:
        for name, attack in attacks():
            if not only or any(word in name for word in only):
                counts[_run(name, attack, here)] += 1
    minutes = (time.monotonic() - began) / 60
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()) + f", in {minutes:.1f} minutes")
    return 1 if counts["BROKEN"] else 0


def _run(name: str, attack: Callable[[Stage], None], here: Stage) -> str:
    began, why, outcome = time.monotonic(), "", "held"
    try:
        attack(here)
    except Skipped as reason:
        outcome, why = "skipped", f": {reason}"
    except Exception as error:
        outcome, why = "BROKEN", f": {error if isinstance(error, Broken) else repr(error)}"
    print(f"attack {name:.<40} {outcome} ({time.monotonic() - began:.1f} s){why}", flush=True)
    return outcome


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
