"""Combines targets with swept values. It reads and creates nothing."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence

from cheetah.bench.failure import Misuse
from cheetah.bench.storage.options import syntax
from cheetah.bench.storage.settings import NODES_MIN, TargetSpec
from cheetah.bench.units import iec

TARGETS_MAX = 100
MODEL = "(model)"
"""In the name of each target that is not a real disk."""

Value = int | str

_PARSE: dict[str, Callable[[str], Value]] = {
    "layout": syntax.layout,
    "unit": syntax.unit,
    "nodes": syntax.count,
    "fs": syntax.file_system,
    "readahead": syntax.readahead,
}
"""In the order of application: whether a unit matters depends on the layout."""

_HINTS = {
    "layout": "only a created drive (ram:…) has a layout",
    "unit": "only a created drive that is not linear (ram:stripe@…) has a stripe unit",
    "nodes": "only a created drive (ram:…) has nodes",
    "readahead": "it is set for loop devices made for the run, that is for drives (ram:…) and with --sweep fs=…; "
    "the read-ahead of your own disks is left alone",
}


def parse(texts: Sequence[str]) -> dict[str, tuple[Value, ...]]:
    """Parses `KEY=A,B,…` each."""
    found: dict[str, tuple[Value, ...]] = {}
    for text in texts:
        key, _, listed = text.partition("=")
        if key not in _PARSE or not listed:
            raise Misuse(f"--sweep {text}: write KEY=A,B,… where KEY is {', '.join(_PARSE)}")
        if key in found:
            raise Misuse(f"--sweep {key} is there twice: put all its values into one list")
        found[key] = tuple(dict.fromkeys(_PARSE[key](one.strip()) for one in listed.split(",")))
    return found


def expand(
    targets: Sequence[tuple[TargetSpec, bool]], sweeps: Mapping[str, Sequence[Value]]
) -> tuple[tuple[TargetSpec, ...], dict[str, str]]:
    """Returns every target with every applicable combination, each once and with its own name; and the name of the
    first target made of each given one. `targets` say whether they were given a name.

    Raises Misuse if a sweep applies to no target, if two have the same name or write to the same server, or if there are
    too many.
    """
    keys = [key for key in _PARSE if key in sweeps]
    used: set[str] = set()
    expanded: list[TargetSpec] = []
    first: dict[str, str] = {}
    for given, named in targets:
        found: dict[TargetSpec, None] = {}
        for values in itertools.product(*(sweeps[key] for key in keys)):
            found.setdefault(_varied(given, named, dict(zip(keys, values, strict=True)), used))
            if len(found) + len(expanded) > TARGETS_MAX:
                raise Misuse(f"that makes more than {TARGETS_MAX} targets: sweep over less")
        first.setdefault(given.name or str(given.directory or _made_name(given)), next(iter(found)).name)
        expanded += found
    for key in keys:
        if key not in used:
            raise Misuse(f"--sweep {key} applies to none of the targets: {_HINTS.get(key, 'there are none')}")
    _check_names(expanded)
    _check_servers(expanded)
    return tuple(expanded), first


def _varied(given: TargetSpec, named: bool, values: Mapping[str, Value], used: set[str]) -> TargetSpec:
    """Returns the target with the values that apply to it."""
    target = given
    said = []
    for key, value in values.items():
        if _applies(key, target):
            used.add(key)
            target = _with(target, key, value)
            said.append(_said(key, value))
    if named:
        name = " ".join([given.name, *said])
    else:
        name = (
            _made_name(target)
            if target.directory is None
            else f"{target.directory}" + (f":{target.fs}" if target.fs else "")
        )
        if target.readahead_bytes is not None:
            name += f" {_said('readahead', target.readahead_bytes)}"
    return dataclasses.replace(target, name=f"{name} {MODEL}" if target.is_model else name)


def _applies(key: str, target: TargetSpec) -> bool:
    if key == "fs":
        return True
    if key == "readahead":
        return target.fs is not None
    if key == "unit":
        return target.drive is not None and target.drive.has_unit
    return target.drive is not None


def _with(target: TargetSpec, key: str, value: Value) -> TargetSpec:
    drive = target.drive
    if key == "fs":
        return dataclasses.replace(target, fs=str(value))
    if key == "readahead":
        return dataclasses.replace(target, readahead_bytes=int(value))
    assert drive is not None
    if key == "layout":
        drive = dataclasses.replace(drive, layout=str(value))
    elif key == "unit":
        drive = dataclasses.replace(drive, unit_bytes=int(value))
    else:
        wanted = int(value)
        if wanted > drive.width:
            raise Misuse(
                f"--sweep nodes={wanted}: {_made_name(target)} has {drive.width}; name more, or sweep to fewer"
            )
        drive = dataclasses.replace(drive, nodes=drive.nodes[:wanted], local=wanted if drive.local else 0)
    if drive.width < NODES_MIN[drive.layout]:
        raise Misuse(f"--sweep {key}={value}: a {drive.layout} drive needs {NODES_MIN[drive.layout]} nodes")
    return dataclasses.replace(target, drive=drive)


def _said(key: str, value: Value) -> str:
    """Returns a value as part of a name."""
    if key == "nodes":
        return f"{value} node" if value == 1 else f"{value} nodes"
    if key == "readahead":
        return f"readahead {iec(int(value))}"
    return iec(int(value)) if key == "unit" else str(value)


def _made_name(target: TargetSpec) -> str:
    """Returns the name of what is made for the run, as it is written on the command line."""
    drive = target.drive
    if drive is None:
        return f"{syntax.DISK}{target.disk_model}:{target.fs}"
    kind = (syntax.ARRAY if drive.disk_model else syntax.RAM).rstrip(":")
    parts = [kind, drive.layout, *([iec(drive.unit_bytes)] if drive.has_unit else []), target.fs or ""]
    over = f"{drive.disk_model}:{drive.width}" if drive.disk_model else str(drive.width)
    return f"{':'.join(filter(None, parts))}@{over}"


def _check_names(targets: Sequence[TargetSpec]) -> None:
    seen: dict[str, TargetSpec] = {}
    for target in targets:
        other = seen.setdefault(target.name, target)
        if other is target:
            continue
        if other == target:
            raise Misuse(f"{target.name} is there twice: leave one out")
        raise Misuse(f"two targets are named {target.name}: give each a name of its own, NAME=TARGET")


def _check_servers(targets: Sequence[TargetSpec]) -> None:
    """Refuses drives that would overwrite each other: all exist at once, and an NBD server, unlike a node, has room for
    one."""
    seen: dict[str, str] = {}
    for target in targets:
        for node in target.drive.nodes if target.drive else ():
            if "://" not in node:
                continue
            other = seen.setdefault(node, target.name)
            if other != target.name:
                raise Misuse(
                    f"{other} and {target.name} would both write to {node}, which holds one drive: measure them in a run"
                    " each"
                )
