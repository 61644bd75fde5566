"""Machines of a room whose clocks show 1970 and 2099: each gets a warning, and everything works."""

import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import MIB, PATIENCE_S, noise

CLOCK = Path(__file__).with_name("wrong_clock.py")
# The second day of 1970, and a day in December 2099.
WRONG = {"past": 86_400, "future": 4_100_000_000}


class Machines:
    """Machines with configurations of their own. Two have wrong clocks; `examiner` has the right one."""

    def __init__(self, folder: Path, binary: str):
        self.folder, self.binary = folder, binary
        self._running: list[subprocess.Popen[str]] = []

    def _command(self, machine: str, words: tuple[str | Path, ...]) -> tuple[list[str], dict[str, str]]:
        environment = {**os.environ, "XDG_CONFIG_HOME": str(self.folder / machine)}
        environment["CHEETAH_KEY"] = str(self.folder / "custody.key")
        environment.pop("CHEETAH_ROOM", None)
        clock = [sys.executable, str(CLOCK), str(WRONG[machine])] if machine in WRONG else []
        return [*clock, self.binary, "--json", *(str(word) for word in words)], environment

    def at(self, machine: str, *words: str | Path) -> tuple[Any, str]:
        """Runs cheetah on a machine. Returns its last JSON, and its stderr."""
        command, environment = self._command(machine, words)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0, f"{machine}: {words}: {done.stdout}{done.stderr}"
        lines = done.stdout.splitlines()
        return json.loads(lines[-1]) if lines else None, done.stderr

    def start(self, machine: str, *words: str | Path) -> tuple[Any, Path]:
        """Starts cheetah on a machine. Returns its first JSON, and the file of its stderr."""
        command, environment = self._command(machine, words)
        log = self.folder / f"{len(self._running)}.log"
        with log.open("w") as errors:
            process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True)
        self._running.append(process)
        assert process.stdout
        line = process.stdout.readline()
        assert line, log.read_text()
        return json.loads(line), log

    def end(self) -> None:
        """Ends all processes."""
        for process in reversed(self._running):
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_S)


@pytest.fixture
def machines(tmp_path: Path, binary: str) -> Iterator[Machines]:
    """The machines, whose processes end with the test."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        pytest.skip("needs Linux on x86-64, since a wrong clock is made by tracing system calls")
    made = Machines(tmp_path, binary)
    yield made
    made.end()


def test_clocks_of_1970_and_2099_are_reported_and_no_reason_to_fail(machines: Machines, tmp_path: Path) -> None:
    differs = "the clock of this machine differs"
    machines.at("examiner", "room", "init", "lab")
    _, at_the_room = machines.start("examiner", "room", "serve", "--listen", "127.0.0.1:0")

    def invite(role: str) -> str:
        said, _ = machines.at("examiner", "room", "invite", "--no-serve", "--role", role, "--address", "127.0.0.1")
        return str(said["invitation"])

    image = tmp_path / "disk.raw"
    image.write_bytes(noise(2 * MIB, 7))
    nodes = []
    for machine in WRONG:
        memory = ("node", "--memory", "32MiB", "--listen", "127.0.0.1:0")
        ready, log = machines.start(machine, *memory, "--room", invite("node"))
        assert ready["transport"] == "tls" and differs in log.read_text()
        nodes.append(ready["nbd"])
    agent, _ = machines.start("future", "serve", image, "--listen", "127.0.0.1:0", "--room", invite("agent"))
    _, said = machines.at("past", "room", "join", invite("examiner"), "--name", "past-desk")
    assert differs in said
    # The room's machine reports each of them.
    assert at_the_room.read_text().count("from this machine's") == 4

    # A drive over both, made and read by machines of all three times, and a disk of one acquired by another.
    drive = tmp_path / "case42.drive"
    machines.at("examiner", "create", drive, "--nodes", ",".join(nodes), "--from", image)
    desk = ("--room", credential(tmp_path / "past", "examiner"))
    machines.at("past", "verify", drive, *desk)
    acquired = tmp_path / "acquired.raw"
    machines.at("past", "acquire", agent["uri"], acquired, *desk)
    assert acquired.read_bytes() == image.read_bytes()
    machines.at("past", "destroy", drive, *desk)

    # Revocation does not depend on clocks.
    machines.at("examiner", "room", "revoke", "past-desk")
    with pytest.raises(AssertionError, match="revoked"):
        machines.at("past", "create", drive, "--nodes", nodes[1], "--size", "1MiB", *desk)


def credential(folder: Path, role: str) -> Path:
    """The file of a machine's credential of a role."""
    (found,) = (path for path in (folder / "cheetah/credentials").glob("*.pem") if role in path.name)
    return found
