"""The versions of the programs."""

import functools
from collections.abc import Iterable

from cheetah.bench import machine
from cheetah.bench.storage.steps.step import Step

# What answers to another option than --version.
_ASKS = {tool: "-V" for tool in ("blkls", "mmls", "fsstat", "icat", "tsk_recover", "sorter", "foremost", "scalpel")}


def version(tool: str) -> str:
    """The first line of what it says of itself; "not installed" where there is none."""
    return machine.first_line((tool, _ASKS.get(tool, "--version")))


def described(steps: Iterable[Step]) -> list[dict[str, str]]:
    """For the report: of each step its key, its title, and the tool that is measured with its version."""
    asked = functools.lru_cache(version)
    return [
        {"key": step.key, "title": step.title, "tool": step.tools[0], "version": asked(step.tools[0])} for step in steps
    ]
