"""The description of the machine and its programs for the report."""

import platform
import subprocess
from collections.abc import Iterable, Sequence

from cheetah.bench.system import machine, programs

ANSWER_S_MAX = 20.0


def first_line(argv: Sequence[str]) -> str:
    """Returns the first line of a program's version, or says that it is not installed."""
    program = programs.found(argv[0])
    if program is None:
        return "not installed"
    try:
        done = subprocess.run(
            argv,
            executable=program,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_S_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return "?"
    lines = (done.stdout or done.stderr).strip().splitlines()
    return lines[0] if lines else "?"


def describe(programs: Iterable[tuple[str, Sequence[str]]] = ()) -> dict[str, str]:
    """Returns the description as a dictionary of lines; `programs` are names and commands that print a version."""
    facts = {**machine.facts(), "python": platform.python_version()}
    for name, argv in programs:
        facts[name] = first_line(argv)
    return facts
