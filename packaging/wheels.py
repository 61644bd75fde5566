"""The Python packages of an environment that packaging/vendor made, as they describe themselves: for the licences and the bill of
materials."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

# What classifiers mean in packages that name their licence in no better way. The BSD licences of those here have three clauses.
CLASSIFIERS = {"MIT License": "MIT", "BSD License": "BSD-3-Clause"}
# The name of Cheetah's own.
OWN = "cheetah-forensics"
# Licences that must go with a binary, of packages whose wheels lack them.
NOTICES = Path(__file__).resolve().parent / "notices"
TEXTS = ("LICEN", "COPYING", "NOTICE", "AUTHORS")


@dataclass(frozen=True)
class Package:
    """A package, with the wheels that it was unpacked from."""

    name: str
    version: str
    summary: str
    licence: str
    address: str
    # The names of others, as wheels write them.
    needs: list[str]
    # The names of files to SHA-256.
    wheels: dict[str, str]
    folder: Path

    def texts(self) -> Iterator[str]:
        """The texts of its licences."""
        for path in sorted(self.folder.rglob("*")):
            own = path.parent == self.folder and path.name.upper().startswith(TEXTS)
            if path.is_file() and (own or self.folder / "licenses" in path.parents):
                yield path.read_text(errors="replace").strip()
        notice = NOTICES / f"{normal(self.name)}.txt"
        if notice.is_file():
            yield notice.read_text().strip()

    def contained(self) -> list[dict[str, Any]]:
        """What was compiled into it, as the bills of materials in it say."""
        bills = [json.loads(path.read_text()) for path in sorted(self.folder.glob("sboms/*.json"))]
        return [component for bill in bills for component in bill.get("components", [])]


def normal(name: str) -> str:
    """The name of a package as wheels write it."""
    return name.lower().replace("-", "_").replace(".", "_")


def licence(about: Distribution) -> str:
    """The licence, as an expression of SPDX."""
    found = about.metadata.get("License-Expression") or about.metadata.get("License")
    if found:
        return str(found)
    classifiers = about.metadata.get_all("Classifier") or []
    named = [line.rpartition(" :: ")[2] for line in classifiers if line.startswith("License :: ")]
    return " AND ".join(CLASSIFIERS[name] for name in named)


def address(about: Distribution) -> str:
    """Where the package comes from."""
    urls = dict(line.split(", ", 1) for line in about.metadata.get_all("Project-URL") or [])
    named = {label.lower(): url for label, url in urls.items()}
    known = [named[label] for label in ("repository", "source", "source code", "homepage") if label in named]
    return str(known[0] if known else about.metadata.get("Home-Page") or "")


def packages(environment: Path) -> list[Package]:
    """The packages, by name."""
    listed = (environment / "wheels.sha256").read_text().splitlines()
    wheels = {name: digest for digest, name in (line.split("  ", 1) for line in listed)}
    # One that each Python has its own files of is there several times.
    folders = {folder.name: folder for folder in sorted((environment / "lib").rglob("*.dist-info"))}
    found = []
    for folder in folders.values():
        about = Distribution.at(folder)
        name, version = str(about.metadata["Name"]), str(about.version)
        own = {file: digest for file, digest in wheels.items() if file.startswith(f"{normal(name)}-{version}-")}
        lines = [line for line in about.metadata.get_all("Requires-Dist") or [] if "extra ==" not in line]
        needs = [normal(re.split(r"[^\w.-]", line)[0]) for line in lines]
        summary = str(about.metadata.get("Summary") or "")
        found.append(Package(name, version, summary, licence(about), address(about), needs, own, folder))
    return sorted(found, key=lambda package: normal(package.name))
