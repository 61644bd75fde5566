"""What the figures are worth: was everything read, and what was not?"""

import dataclasses
from typing import Any

from cheetah.page.units import count, percent, size

Json = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Verdict:
    """`kind` is "whole", "gaps", "quick" or "stopped"; the rest are words, all our own. `running` stands on each printed
    page."""

    kind: str
    headline: str
    sentence: str
    running: str
    gaps: tuple[str, ...]


_UNITS = {"content": "files", "unallocated": "stretches"}
"""What a stage's progress counts."""
_HEADLINES = {
    "whole": (
        "Everything that was found was read.",
        "Each file system was understood and listed, each file was read whole, and all space that no file and no file "
        "system uses was searched. What is left of a file's last block (slack) was not.",
        "Triage report",
    ),
    "gaps": (
        "Done, with gaps.",
        "Every stage was done to its end. What could not be read, or was left out, is listed here; nothing is known of it.",
        "Triage report, with gaps: see section 1",
    ),
    "quick": (
        "A quick look, not an examination.",
        "The files that looked most promising by name, place and time were read, and no others. That something does not "
        "appear in this report says nothing about whether it is on the source.",
        "PARTIAL: a quick look, most files were not read",
    ),
    "stopped": (
        "Stopped before its end: this is a part of the result.",
        "The run was interrupted, or a part of it was given up. That something does not appear in this report says nothing about whether it is on the "
        "source. The same command goes on where it stopped.",
        "PARTIAL: stopped before its end",
    ),
}


def of(summary: Json) -> Verdict:
    """The verdict on a run."""
    headline, sentence, running = _HEADLINES[summary["verdict"]]
    return Verdict(summary["verdict"], headline, sentence, running, tuple(_gaps(summary)))


def _gaps(summary: Json) -> list[str]:
    coverage = summary["coverage"]
    return [
        *_unfinished(coverage["stages"]),
        *_volumes(summary),
        *_files(coverage["files"]),
        *_unallocated(coverage["unallocated"]),
    ]


def _unfinished(stages: Json) -> list[str]:
    return [
        f"The stage “{name}” is not done: {count(stage['done'])} of {count(stage['total'])} {_UNITS.get(name, 'parts known so far')}."
        for name, stage in stages.items()
        if stage["done"] < stage["total"]
    ]


def _volumes(summary: Json) -> list[str]:
    volumes = summary["volumes"]
    looked = summary["coverage"]["stages"].get("volumes", {"done": 1, "total": 1})
    if not volumes and looked["done"] < looked["total"]:
        return ["Which file systems there are could not be found out."]
    if not volumes:
        return ["No file system was found. The source may be encrypted, wiped, or of a kind that is not understood."]
    foreign = [one for one in volumes if not one["fs"]]
    return [
        f"Volume {one['index']} ({size(one['length'])}) holds no file system that is understood; no file in it was listed."
        for one in foreign
    ]


def _files(states: Json) -> list[str]:
    total = sum(state["files"] for state in states.values())
    sentences = {
        "unreadable": "unreadable, whole or in part",
        "partial": "read in part",
        "unread": "not read",
        "skipped": "left out on purpose",
    }
    return [
        f"{_files_were(states[name]['files'])} {words}: {percent(states[name]['files'], total)} of all, "
        f"{size(states[name]['bytes'])} as the file system has it."
        for name, words in sentences.items()
        if states[name]["files"]
    ]


def _files_were(number: int) -> str:
    return "1 file was" if number == 1 else f"{count(number)} files were"


def _unallocated(space: Json) -> list[str]:
    if not space["wanted"]:
        return ["What belongs to no file (unallocated space) was not searched, as this was not asked for."]
    sentences = []
    rest = space["bytes"] - space["searched"] - space["unreadable"]
    if rest > 0:
        sentences.append(f"Up to {size(rest)} of unallocated space were not searched.")
    if space["unreadable"]:
        sentences.append(f"{size(space['unreadable'])} of unallocated space could not be read.")
    return sentences
