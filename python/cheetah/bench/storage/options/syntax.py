"""Parses values on the command line: sizes, durations, targets. Misuse names the valid values."""

import dataclasses
import re
from pathlib import Path

from cheetah import sizes
from cheetah.bench.failure import Misuse
from cheetah.bench.storage.settings import DISK_MODELS, NODES_MIN, DrivePlan, TargetSpec
from cheetah.bench.units import KIB, MIB

LAYOUTS = tuple(NODES_MIN)
FILE_SYSTEMS = ("ext4", "ext3", "ext2", "xfs", "btrfs", "vfat", "ntfs")
DEFAULT_FS = "ext4"
DEFAULT_UNIT_BYTES = 64 * KIB
UNIT_BYTES = (4 * KIB, 4 * MIB)
NODES_MAX = 64
READAHEAD_BYTES_MAX = 1 << 30
RAM, DISK, ARRAY = "ram:", "disk:", "array:"
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}
_DRIVE = "ram:LAYOUT[:UNIT][:FS]@NODES, for instance ram:stripe:64KiB@node1,node2 or ram:linear@local:3"
_ARRAY = "array:LAYOUT[:UNIT][:FS]@MODEL:N, for instance array:stripe:64KiB@desktop:4"
_NAME = re.compile(r"[^=/:]{1,80}")


def size(text: str) -> int:
    """Returns the bytes of "64KiB" or "1.5G"."""
    try:
        return sizes.parse(text)
    except ValueError as error:
        raise Misuse(str(error)) from None


def duration(text: str) -> float:
    """Returns the seconds of "90s", "5m" or "1h"."""
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)\s*([a-z]*)", text)
    if match is None or match[2] not in _SECONDS or float(match[1]) == 0:
        raise Misuse(f"{text!r} is not a duration: write 90s, 5m or 1h")
    return float(match[1]) * _SECONDS[match[2]]


def unit(text: str) -> int:
    """Returns a stripe unit in bytes."""
    found = size(text)
    if not UNIT_BYTES[0] <= found <= UNIT_BYTES[1] or found & (found - 1):
        raise Misuse(f"{text} is not a stripe unit: it must be a power of two from 4KiB to 4MiB")
    return found


def layout(text: str) -> str:
    """Returns a layout of a drive."""
    if text not in LAYOUTS:
        raise Misuse(f"there is no layout {text!r}; there are {', '.join(LAYOUTS)}")
    return text


def file_system(text: str) -> str:
    """Returns a supported file system."""
    if text not in FILE_SYSTEMS:
        raise Misuse(f"there is no file system {text!r} here; there are {', '.join(FILE_SYSTEMS)}")
    return text


def count(text: str) -> int:
    """Returns a number of nodes."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= NODES_MAX:
        raise Misuse(f"{text!r} is not a number of nodes: write 1 to {NODES_MAX}")
    return int(text)


def readahead(text: str) -> int:
    """Returns the kernel's read-ahead in bytes, a multiple of a page."""
    found = size(text)
    if found % (4 * KIB) or found > READAHEAD_BYTES_MAX:
        raise Misuse(f"{text} is not a read-ahead: it must be 0, or a multiple of 4KiB up to 1GiB")
    return found


def target(word: str) -> tuple[TargetSpec, bool]:
    """Parses TARGET or NAME=TARGET. Returns the target, and whether it was given a name; `name` is "" otherwise."""
    name, equals, rest = word.partition("=")
    # A directory may have an equals sign in its name.
    if not equals or not _NAME.fullmatch(name) or Path(word).is_dir():
        return _nameless(word), False
    return dataclasses.replace(_nameless(rest), name=name.strip()), True


def _nameless(word: str) -> TargetSpec:
    if word.startswith(RAM):
        return _drive(word, RAM, _DRIVE)
    if word.startswith(ARRAY):
        return _drive(word, ARRAY, _ARRAY)
    if word.startswith(DISK):
        return _disk(word)
    if not word or "://" in word:
        raise Misuse(f"{word!r} is not a target: name a directory, or a drive to create: {_DRIVE}")
    path = Path(word)
    if not path.exists():
        raise Misuse(f"{word}: there is no such directory; create it, or name a drive to create: {_DRIVE}")
    if not path.is_dir():
        raise Misuse(f"{word} is not a directory: mount it, and name the directory")
    return TargetSpec("", path.resolve())


def _disk(word: str) -> TargetSpec:
    model, _, fs = word.removeprefix(DISK).partition(":")
    return TargetSpec("", fs=file_system(fs) if fs else DEFAULT_FS, disk_model=_model(word, model))


def _model(word: str, text: str) -> str:
    if text not in DISK_MODELS:
        raise Misuse(f"{word}: there is no model of a disk {text!r}; there are {', '.join(DISK_MODELS)}")
    return text


def _drive(word: str, prefix: str, form: str) -> TargetSpec:
    what, at, where = word.removeprefix(prefix).partition("@")
    if not at or not where:
        raise Misuse(f"{word} does not name its nodes: {form}")
    chosen: dict[str, str] = {}
    for part in filter(None, what.split(":")):
        key = "layout" if part in LAYOUTS else "fs" if part in FILE_SYSTEMS else "unit"
        if key == "unit" and not part[0].isdigit():
            raise Misuse(
                f"{word}: {part} is not a layout ({', '.join(LAYOUTS)}), stripe unit or file system"
                f" ({', '.join(FILE_SYSTEMS)}); write {form}"
            )
        if key in chosen:
            raise Misuse(f"{word} has both {chosen[key]} and {part}: leave one out, or use --sweep {key}=…")
        chosen[key] = part
    laid_out = chosen.get("layout", "stripe")
    if laid_out == "linear" and "unit" in chosen:
        raise Misuse(f"{word}: a linear drive has no stripe unit; leave {chosen['unit']} out, or write stripe")
    unit_bytes = unit(chosen["unit"]) if "unit" in chosen else DEFAULT_UNIT_BYTES
    plan = _over(word, prefix, where, DrivePlan(laid_out, unit_bytes))
    if plan.width < NODES_MIN[laid_out]:
        raise Misuse(f"{word}: a {laid_out} drive needs {NODES_MIN[laid_out]} nodes, and {plan.width} is named")
    return TargetSpec("", None, plan, chosen.get("fs", DEFAULT_FS))


def _over(word: str, prefix: str, where: str, plan: DrivePlan) -> DrivePlan:
    """Returns the plan over nodes, or over models of disks."""
    if prefix == ARRAY:
        model, _, number = where.partition(":")
        return dataclasses.replace(plan, local=count(number), disk_model=_model(word, model))
    local, nodes = _nodes(word, where)
    return dataclasses.replace(plan, nodes=nodes, local=local)


def _nodes(word: str, where: str) -> tuple[int, tuple[str, ...]]:
    if where.startswith("local:"):
        return count(where.removeprefix("local:")), ()
    nodes = tuple(where.split(","))
    if not all(nodes) or "local" in nodes:
        raise Misuse(
            f"{word}: the nodes are HOST, HOST:PORT or NBD URIs separated by commas, or local:N for N on this machine"
        )
    if len(set(nodes)) != len(nodes):
        raise Misuse(f"{word} names a node twice")
    if len(nodes) > NODES_MAX:
        raise Misuse(f"{word} names {len(nodes)} nodes; the maximum is {NODES_MAX}")
    return 0, nodes
