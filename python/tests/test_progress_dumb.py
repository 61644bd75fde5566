"""Progress on a terminal that cannot move its cursor (TERM=dumb): plain lines, of the same style for every verb."""

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import MIB, PATIENCE_S, noise

from cheetah.bench.storage.run import progress as bench
from cheetah.triage.hub import progress as triage

LINE = re.compile(r"^(.+): ([\d.]+\w+) of ([\d.]+\w+) \((\d+)%\), \d+ MiB/s, (.+ left|time left unknown)$")


def on_a_dumb_terminal(argv: list[str | Path], tmp_path: Path) -> list[str]:
    """Runs a program whose stderr is such a terminal; returns the lines on it."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "dumb"}
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=theirs, env=environment, cwd=tmp_path)
    os.close(theirs)
    said = b""
    try:
        while piece := os.read(ours, 4096):
            said += piece
    except OSError:
        # The other end was closed.
        pass
    assert process.wait(PATIENCE_S) == 0, said
    return said.decode().replace("\r\n", "\n").splitlines()


def test_a_slow_acquisition_and_a_slow_load_print_lines_of_one_style(
    tmp_path: Path, nbdkit: Callable[..., str], binary: str, nodes: str
) -> None:
    image = tmp_path / "disk.raw"
    image.write_bytes(noise(6 * MIB, 1))
    slow = nbdkit("--filter=rate", "-r", "file", image, "rate=10M")
    acquired = on_a_dumb_terminal([binary, "acquire", slow, "copy.raw"], tmp_path)
    loaded = on_a_dumb_terminal([binary, "create", "case.drive", "--nodes", nodes, "--from", slow], tmp_path)
    for lines, what in ((acquired, "acquiring"), (loaded, "loading")):
        shown = [found for line in lines if (found := LINE.match(line))]
        assert shown and all(found[1].startswith(what) and found[3] == "6MiB" for found in shown), lines
        assert not any("\x1b" in line for line in lines), lines


@pytest.mark.parametrize("verb", [triage, bench])
def test_verbs_in_python_print_lines_too(verb: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "dumb")
    with verb.shown() as tell:
        assert type(tell).__name__ == "Plain"
