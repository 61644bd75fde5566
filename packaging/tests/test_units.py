"""The units of systemd: valid, confined, and with a command that works as the unit starts it."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import PATIENCE_S, ROOT, program, run

SOURCES = ROOT / "packaging/systemd"
NODE, SERVE = "cheetah-node.service", "cheetah-serve@.service"
# Of 10; the settings of a service that is not confined make 9.6.
EXPOSURE_MAX = 2.0


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The units as they are installed, with a program in place of the binary."""
    folder = tmp_path / "units"
    folder.mkdir()
    for source in SOURCES.iterdir():
        (folder / source.name).write_text(source.read_text().replace("@bindir@/cheetah", "/bin/true"))
    return folder


def test_every_unit_is_valid(units: Path) -> None:
    analyze = program("systemd-analyze")
    # A template is checked as one of its instances.
    instance = units / SERVE.replace("@", "@dev-sda")
    (units / SERVE).rename(instance)
    said = subprocess.run(
        [analyze, "--man=no", "verify", units / NODE, instance], capture_output=True, text=True, timeout=PATIENCE_S
    )
    ours = [line for line in said.stderr.splitlines() if "cheetah" in line]
    assert said.returncode == 0 and ours == [], said.stderr


@pytest.mark.parametrize("unit", [NODE, SERVE])
def test_a_unit_is_confined(units: Path, unit: str) -> None:
    said = run(program("systemd-analyze"), "security", "--offline=true", units / unit)
    found = re.search(r"exposure level for \S+: ([0-9.]+)", said)
    assert found and float(found[1]) <= EXPOSURE_MAX, said


@pytest.mark.parametrize("unit", [NODE, SERVE])
def test_memory_of_a_unit_is_never_written_to_a_disk(unit: str) -> None:
    lines = (SOURCES / unit).read_text().splitlines()
    assert {"LimitCORE=0", "LimitMEMLOCK=infinity", "MemorySwapMax=0", "ProtectSystem=strict"} <= set(lines)


class Service:
    """A unit's command on a machine of its own, as systemd would start it there."""

    def __init__(self, unit: str, binary: str, machine: Path, instance: str = ""):
        text = (SOURCES / unit).read_text().replace("@bindir@/cheetah", binary)
        text = text.replace("%S", str(machine)).replace("%f", instance)
        settings = re.findall(r"^Environment=(.*)$", text, re.MULTILINE)
        self.environment = dict(word.split("=", 1) for line in settings for word in shlex.split(line))
        self.environment["CREDENTIALS_DIRECTORY"] = str(machine)
        command = re.search(r"^ExecStart=(.*)$", text, re.MULTILINE)
        assert command
        self.command = command[1]

    def start(self, options: str) -> tuple[subprocess.Popen[str], Any]:
        """Starts it with these options in place of the unit's own; returns its first answer."""
        environment = self.environment | {name: options for name in self.environment if name.endswith("_OPTIONS")}
        words = [re.sub(r"\$\{(\w+)\}", lambda found: environment[found[1]], word) for word in self.command.split()]
        words = [part for word in words for part in (environment[word[1:]].split() if word[0] == "$" else [word])]
        process = subprocess.Popen([words[0], "--json", *words[1:]], env=environment, stdout=subprocess.PIPE, text=True)
        assert process.stdout
        return process, json.loads(process.stdout.readline())


def ended(process: subprocess.Popen[str]) -> int:
    """Ends a process as systemd does; returns its exit code."""
    process.send_signal(signal.SIGTERM)
    return process.wait(PATIENCE_S)


class Room:
    """A room on a machine of its own, whose server lets machines in."""

    def __init__(self, binary: str, desk: Path):
        self.binary = binary
        self.environment = {"XDG_CONFIG_HOME": str(desk), "XDG_STATE_HOME": str(desk), "PATH": os.environ["PATH"]}
        run(binary, "room", "init", "lab", env=self.environment)
        argv = [binary, "--json", "room", "serve", "--listen", "127.0.0.1:0"]
        self.server = subprocess.Popen(argv, env=self.environment, stdout=subprocess.PIPE, text=True)
        assert self.server.stdout and self.server.stdout.readline()

    def invite(self, role: str, machine: Path) -> None:
        """Puts an invitation where the unit finds it."""
        machine.mkdir()
        options = ("--no-serve", "--address", "127.0.0.1", "--out", machine / "room")
        run(self.binary, "room", "invite", "--role", role, *options, env=self.environment)


@pytest.fixture
def room(binary: str, tmp_path: Path) -> Iterator[Room]:
    """A room; its server ends with the test."""
    made = Room(binary, tmp_path / "desk")
    yield made
    made.server.terminate()
    made.server.wait(PATIENCE_S)


def test_the_node_joins_by_the_invitation_and_starts_again_without_the_rooms_machine(
    binary: str, room: Room, tmp_path: Path
) -> None:
    machine = tmp_path / "node"
    room.invite("node", machine)
    service = Service(NODE, binary, machine)
    node, said = service.start("--memory 32MiB --listen 127.0.0.1:0")
    try:
        assert said["transport"] == "tls", said
        run(binary, "create", tmp_path / "a.drive", "--nodes", said["nbd"], "--size", "1MiB", env=room.environment)
        run(binary, "destroy", tmp_path / "a.drive", env=room.environment)
    finally:
        assert ended(node) == 0
    ended(room.server)
    node, said = service.start("--memory 32MiB --listen 127.0.0.1:0")
    assert said["transport"] == "tls" and ended(node) == 0, said


def test_the_agent_serves_the_disk_of_its_instance_to_the_room(binary: str, room: Room, tmp_path: Path) -> None:
    machine, disk = tmp_path / "suspect", tmp_path / "disk.raw"
    disk.write_bytes(os.urandom(1 << 20))
    room.invite("agent", machine)
    agent, said = Service(SERVE, binary, machine, str(disk)).start("--listen 127.0.0.1:0")
    try:
        run(binary, "acquire", said["uri"], tmp_path / "copy.raw", env=room.environment)
        assert (tmp_path / "copy.raw").read_bytes() == disk.read_bytes()
    finally:
        assert ended(agent) == 0
