"""The crates that the binary and the Python extension are linked with, as cargo knows them: for the licences and the bill of
materials."""

import json
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# The crates of the binary and of the Python extension.
PROGRAM, EXTENSION = "cheetah", "cheetah-python"


def metadata() -> dict[str, Any]:
    """What cargo knows of the crates, for this machine's processor."""
    version = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout
    [host] = [line.removeprefix("host: ") for line in version.splitlines() if line.startswith("host: ")]
    argv = [
        "cargo",
        "metadata",
        "--format-version=1",
        "--locked",
        "--filter-platform",
        host,
        "--features",
        "cheetah/ublk",
    ]
    return dict(json.loads(subprocess.run(argv, check=True, capture_output=True, cwd=ROOT).stdout))


def needs(known: dict[str, Any]) -> dict[str, list[str]]:
    """The ids of the crates that each crate is linked with: no tools of the build, and no tests."""
    return {
        node["id"]: [need["pkg"] for need in node["deps"] if any(kind["kind"] is None for kind in need["dep_kinds"])]
        for node in known["resolve"]["nodes"]
    }


def own(known: dict[str, Any], name: str) -> dict[str, Any]:
    """One of the project's crates."""
    [found] = [package for package in known["packages"] if package["name"] == name and not package["source"]]
    return dict(found)


def linked(known: dict[str, Any], *names: str) -> set[str]:
    """The ids of the project's crates of these names, and of those that they are linked with."""
    of_each = needs(known)
    found: set[str] = set()
    waiting = [own(known, name)["id"] for name in names]
    while waiting:
        crate = waiting.pop()
        if crate not in found:
            found.add(crate)
            waiting += of_each[crate]
    return found
