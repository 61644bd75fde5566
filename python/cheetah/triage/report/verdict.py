"""The completeness of a run: whether everything was read, and the parts that were not."""

import dataclasses
from typing import Any

from cheetah.page.units import count, percent, size

Json = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A verdict. `kind` is "whole", "gaps", "quick" or "stopped"; the rest is text of ours."""

    kind: str
    headline: str
    sentence: str
    gaps: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """What was left out without being a gap."""


_UNITS = {"content": "files", "unallocated": "stretches"}
"""The units of a stage's progress."""
_HEADLINES = {
    "whole": (
        "Everything that was found was read.",
        "Each file system was recognised and listed, each file was read whole. "
        "Slack, the unused end of a file's last block, was not searched.",
    ),
    "gaps": (
        "Done, with gaps.",
        "Every stage was completed. What could not be read, or was left out, is listed here; nothing is known about it.",
    ),
    "quick": (
        "A quick look, not an examination.",
        "Only the files that ranked highest by name, place and time were read. That something does not "
        "appear in this report does not mean that it is not on the source.",
    ),
    "stopped": (
        "Stopped early: this is part of the result.",
        "The run was interrupted, or a part of it was given up. That something does not appear in this report does not mean "
        "that it is not on the source. The same command resumes the run.",
    ),
}
_SEARCHED = "or searched where it lies for what the YARA rules need, and found to have none of it"


def of(summary: Json) -> Verdict:
    """Returns the verdict on a run."""
    headline, sentence = _HEADLINES[summary["verdict"]]
    coverage = summary["coverage"]
    gaps = _gaps(summary)
    notes = [*_unsought(coverage["unallocated"]), *_skipped(coverage["files"])]
    if summary["verdict"] == "whole" and coverage["unallocated"]["wanted"]:
        sentence = sentence.replace(
            "each file was read whole", "each file was read whole, and all unallocated space was searched", 1
        )
    if is_searched_in_part(summary):
        sentence = sentence.replace("each file was read whole", f"each file was read whole, {_SEARCHED}", 1)
    if summary["verdict"] in ("quick", "stopped"):
        gaps, notes = gaps + notes, []
    return Verdict(summary["verdict"], headline, sentence, tuple(gaps), tuple(notes))


def is_searched_in_part(summary: Json) -> bool:
    """Returns whether files may count as whole of which only the beginning was read, since the rest was searched where it lies: in this
    run, or in one that it resumes."""
    at_nodes = summary.get("at_nodes")
    if at_nodes is None:
        return bool(summary.get("settings", {}).get("at_nodes"))
    return "searched_bytes" in at_nodes or bool(at_nodes.get("failed"))


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
        f"The stage “{name}” is incomplete: {count(stage['done'])} of {count(stage['total'])} {_UNITS.get(name, 'known parts')}."
        for name, stage in stages.items()
        if stage["done"] < stage["total"]
    ]


def _volumes(summary: Json) -> list[str]:
    volumes = summary["volumes"]
    looked = summary["coverage"]["stages"].get("volumes", {"done": 1, "total": 1})
    if not volumes and looked["done"] < looked["total"]:
        return ["The file systems could not be determined."]
    if not volumes:
        return ["No file system was found. The source may be encrypted, wiped, or of an unsupported kind."]
    foreign = [one for one in volumes if not one["fs"]]
    return [
        f"Volume {one['index']} ({size(one['length'])}) holds no supported file system; no file in it was listed."
        for one in foreign
    ]


def _files(states: Json) -> list[str]:
    total = sum(state["files"] for state in states.values())
    sentences = {
        "unreadable": "unreadable, whole or in part",
        "partial": "read in part",
        "unread": "not read",
    }
    return [
        f"{_files_were(states[name]['files'])} {words}: {percent(states[name]['files'], total)} of all, "
        f"{size(states[name]['bytes'])} according to the file system."
        for name, words in sentences.items()
        if states[name]["files"]
    ]


def _unsought(space: Json) -> list[str]:
    return [] if space["wanted"] else ["Unallocated space was not searched, as this was not requested."]


def _skipped(states: Json) -> list[str]:
    files = states["skipped"]["files"]
    if not files:
        return []
    have = "1 entry has" if files == 1 else f"{count(files)} entries have"
    return [f"{have} no content of their own to read: deleted files whose place is in use again, and the like."]


def _files_were(number: int) -> str:
    return "1 file was" if number == 1 else f"{count(number)} files were"


def _unallocated(space: Json) -> list[str]:
    if not space["wanted"]:
        return []
    sentences = []
    rest = space["bytes"] - space["searched"] - space["unreadable"]
    if rest > 0:
        sentences.append(f"Up to {size(rest)} of unallocated space were not searched.")
    if space["unreadable"]:
        sentences.append(f"{size(space['unreadable'])} of unallocated space could not be read.")
    return sentences
