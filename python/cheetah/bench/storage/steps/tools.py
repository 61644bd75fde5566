"""The versions of the programs."""

import functools
from collections.abc import Iterable

from cheetah.bench import machine
from cheetah.bench.storage.steps.step import Step

# Programs with another option than --version.
_ASKS = {tool: "-V" for tool in ("blkls", "mmls", "fsstat", "icat", "tsk_recover", "sorter", "foremost", "scalpel")}


def version(tool: str) -> str:
    """Returns the first line of its version; "not installed" if there is none."""
    return machine.first_line((tool, _ASKS.get(tool, "--version")))


def described(steps: Iterable[Step]) -> list[dict[str, str]]:
    """Returns each step's key, title, and measured tool with its version, for the report."""
    cached_version = functools.lru_cache(version)
    return [
        {"key": step.key, "title": step.title, "tool": step.tools[0], "version": cached_version(step.tools[0])}
        for step in steps
    ]
