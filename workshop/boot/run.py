"""Running the programs that the build is made with."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from boot.error import BuildError, MissingError


def run(argv: Sequence[str], env: Mapping[str, str] | None = None, cwd: str | None = None) -> str:
    """Runs a program to its end and returns its output. Raises BuildError with the program's own message, and
    MissingError if there is no such program."""
    if not shutil.which(argv[0]):
        raise MissingError(f"{argv[0]} is not installed: run scripts/install-deps --live")
    done = subprocess.run(
        argv, env={**os.environ, **(env or {})}, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    if done.returncode != 0:
        complaint = (done.stderr or done.stdout).decode(errors="replace").strip()[-400:]
        raise BuildError(f"{' '.join(argv)}: {complaint or f'exit status {done.returncode}'}")
    return done.stdout.decode(errors="replace")
