"""All traffic of a room, captured: without TLS, it contains the image, keys and tokens; with TLS, none of them."""

import base64
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import MIB, PATIENCE_S, noise, program, run

HERE = "10.97.0.1"
# Strings of Cheetah's own protocols.
SAID = (b"HTTP/1.1", b"/v1/exports", b"x-cheetah:", b'"instance"', b'"token"')
SECTOR = 512
# More than the traffic, so that a busy machine drops no packet.
BUFFER_KIB = 256 << 10


class Lab:
    """Machines of one network, each with a configuration of its own, on which every packet is captured."""

    def __init__(self, folder: Path, binary: str, secured: bool):
        self.folder, self.binary, self.secured = folder, binary, secured
        self.network = f"ct-wire-{os.getpid()}-{secured:d}"
        self.insecure = () if secured else ("--insecure",)
        self._running: list[subprocess.Popen[str]] = []
        run(program("ip"), "netns", "add", self.network)
        for words in (
            "link set lo up",
            "link add eth0 type veth peer name eth1",
            f"addr add {HERE}/24 dev eth0",
            "link set eth0 up",
            "link set eth1 up",
        ):
            run(program("ip"), "-n", self.network, *words.split())
        self._enter = [program("nsenter"), f"--net=/run/netns/{self.network}"]
        self.capture = folder / "capture.pcap"
        command = [*self._enter, program("tcpdump"), "-i", "any", "-s", "0", "-B", str(BUFFER_KIB), "-Z", "root"]
        self._tcpdump = subprocess.Popen(
            [*command, "-w", str(self.capture)], stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        assert (
            self._tcpdump.stderr and "listening on" in self._tcpdump.stderr.readline() + self._tcpdump.stderr.readline()
        )

    def command(self, machine: str, *words: str | Path) -> tuple[list[str], dict[str, str]]:
        """A command on a machine, and its environment."""
        environment = {
            **os.environ,
            "XDG_CONFIG_HOME": str(self.folder / machine),
            "CHEETAH_PYTHON": sys.executable,
            "CHEETAH_KEY": str(self.folder / "custody.key"),
        }
        environment.pop("CHEETAH_ROOM", None)
        return [*self._enter, *(str(word) for word in words)], environment

    def at(self, machine: str, *words: str | Path) -> Any:
        """Runs cheetah on a machine. Returns its last JSON."""
        command, environment = self.command(machine, self.binary, "--json", *words)
        lines = run(*command, env=environment).splitlines()
        return json.loads(lines[-1]) if lines else None

    def start(self, machine: str, *words: str | Path, event: str = "ready") -> Any:
        """Starts cheetah on a machine. Returns its first JSON."""
        command, environment = self.command(machine, self.binary, "--json", *words)
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True)
        self._running.append(process)
        assert process.stdout
        said = json.loads(process.stdout.readline())
        assert said["event"] == event, said
        return said

    def python(self, machine: str, *words: str | Path) -> None:
        """Starts a module of the package on a machine."""
        command, environment = self.command(machine, sys.executable, "-m", *words)
        with open(self.folder / f"{len(self._running)}.log", "wb") as log:
            self._running.append(
                subprocess.Popen(command, env=environment, stdout=log, stderr=log, text=True, start_new_session=True)
            )

    def finish(self) -> None:
        """Waits for the process that was started before the last one."""
        assert self._running.pop(-2).wait(PATIENCE_S) == 0

    def end(self) -> bytes:
        """Ends all processes. Returns the captured traffic."""
        for process in reversed(self._running):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(PATIENCE_S)
        self._running.clear()
        if self._tcpdump.poll() is None:
            self._tcpdump.send_signal(signal.SIGINT)
            _, said = self._tcpdump.communicate(timeout=PATIENCE_S)
            assert "\n0 packets dropped by kernel" in said, said
        return self.capture.read_bytes()

    def remove(self) -> None:
        """Removes the network, also after a failure."""
        for process in [*self._running, self._tcpdump]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(PATIENCE_S)
        run(program("ip"), "netns", "delete", self.network)


@contextlib.contextmanager
def lab(folder: Path, binary: str, secured: bool) -> Iterator[Lab]:
    """A network that is removed at the end."""
    folder.mkdir()
    made = Lab(folder, binary, secured)
    try:
        yield made
    finally:
        made.remove()


def until(what: Path) -> str:
    """Waits for a file with content."""
    end = time.monotonic() + PATIENCE_S
    while not what.exists() or not what.read_text():
        assert time.monotonic() < end, f"{what} is not written"
        time.sleep(0.05)
    return what.read_text()


def made_over(triage: Path, protection: str) -> int:
    """Returns the number of connections in the report of a triage, which must all be protected like this."""
    connections = json.loads((triage / "summary.json").read_text())["source"]["connections"]
    assert all(protection in said for said in connections), connections
    return len(connections)


def work(at: Lab, image: Path) -> list[str]:
    """Uses every connection that Cheetah makes. Returns the invitations."""
    invitations = []

    def joining(role: str) -> tuple[str, ...]:
        if not at.secured:
            return at.insecure
        made = at.at("examiner", "room", "invite", "--no-serve", "--role", role, "--address", HERE)
        invitations.append(made["invitation"])
        return ("--room", made["invitation"])

    if at.secured:
        at.at("examiner", "room", "init", "lab")
        at.start("examiner", "room", "serve", "--listen", f"{HERE}:0", "--announce")
        at.at("ann", "room", "join", joining("analyst")[1], "--name", "ann")
    memory = ("node", "--memory", "96MiB", "--listen", f"{HERE}:0")
    node = at.start("pc1", *memory, *joining("node"))
    agent = at.start("suspect", "serve", image, "--listen", f"{HERE}:0", *joining("agent"))
    folder, drive = at.folder, at.folder / "case42.drive"
    # A drive, written and read, and its node at the control port.
    at.at("examiner", "create", drive, "--nodes", node["nbd"], "--from", image)
    at.at("examiner", "status", drive)
    at.at("ann", "verify", drive)
    at.at("examiner", "save", drive, folder / "saved.raw")
    # An agent that is called, and one that calls.
    at.at("examiner", "acquire", agent["uri"], folder / "called.raw")
    waiting = at.start(
        "examiner", "acquire", "--listen", f"{HERE}:0", folder / "calling.raw", *at.insecure, event="waiting"
    )
    at.start("suspect", "serve", image, "--connect", waiting["listen"], *at.insecure)
    at.finish()
    # A drive exported, and a node that offers itself.
    export = at.start("examiner", "export", drive, "--listen", f"{HERE}:0", *at.insecure)
    at.at("ann", "acquire", export["uri"], folder / "exported.raw")
    gather = ("create", folder / "joined.drive", "--wait", "1", "--size", "4MiB", "--listen", f"{HERE}:0")
    waiting = at.start("examiner", *gather, *at.insecure, event="waiting")
    at.start("pc1", *memory, "--join", waiting["listen"], *at.insecure)
    at.finish()
    # Measurements with a node and an agent as the far end, without the bulk transfers, which have no content.
    for far in (node["http"], agent["probe"]):
        only = ("--only", "far", "--far", far.rpartition(":")[2], "--packets-max", "15000")
        report = at.at("examiner", "probe", HERE, *only)
        assert report["far"]["name"], report
    # A triage of the agent's disk, and one of the drive by a Dask cluster.
    command, environment = at.command("ann", at.binary, "triage", agent["uri"], "--out", folder / "triage")
    run(*command, env=environment)
    assert made_over(folder / "triage", "TLS 1.3, " if at.secured else "in clear: ") == 1
    dask = "cheetah.dask" if at.secured else "dask"
    place = folder / "scheduler.json"
    at.python("ann", dask, "scheduler", "--host", HERE, "--port", "0", "--scheduler-file", place)
    address = json.loads(until(place))["address"]
    assert address.startswith("tls://") == at.secured
    threads = () if at.secured else ("--nthreads", "1")
    at.python("ann", dask, "worker", address, "--nworkers", "1", *threads)
    triage = (at.binary, "triage", drive, "--out", folder / "cluster", "--scheduler", address)
    command, environment = at.command("ann", *triage)
    run(*command, env=environment)
    assert made_over(folder / "cluster", "TLS 1.3, " if at.secured else "in clear: ") == 1
    if at.secured:
        at.at("examiner", "room", "list")
        at.at("examiner", "room", "revoke", "ann")
    for read in ("saved.raw", "called.raw", "calling.raw", "exported.raw"):
        assert (folder / read).read_bytes() == image.read_bytes(), read
    at.at("examiner", "destroy", drive, "--force")
    return invitations


def private_keys(folder: Path) -> list[bytes]:
    """The private keys in all files below a folder: each as its number and as text."""
    found = []
    for path in folder.rglob("*.pem"):
        for text in re.findall(r"-----BEGIN PRIVATE KEY-----\n(.*?)-----END", path.read_text(), re.DOTALL):
            der = base64.b64decode(text)
            # PKCS #8: the number of 32 bytes follows the version of the key.
            at = der.index(b"\x02\x01\x01\x04\x20") + 5
            found += [der[at : at + 32], text.splitlines()[0].encode()]
    return found


def tokens(invitations: list[str]) -> list[bytes]:
    """The secrets of invitations: each as bytes, as hexadecimal digits, and the string itself."""
    found = []
    for invitation in invitations:
        encoded = invitation.removeprefix("room1.")
        raw = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
        # Four bytes of a checksum are at the end.
        token = raw[-20:-4]
        found += [token, token.hex().encode(), invitation.encode()]
    return found


def share_of(image: bytes, passed: bytes) -> float:
    """Returns the share of an image's sectors of which eight bytes occur anywhere in the traffic."""
    words = np.frombuffer(image, "<u8")[:: SECTOR // 8]
    words = np.unique(words[words != 0])
    # A comparison of 24 bits excludes most of the traffic.
    bits = np.uint64(0xFFFFFF)
    likely = np.zeros(1 << 24, bool)
    likely[words & bits] = True
    found = np.zeros(len(words), bool)
    for start in range(8):
        windows = np.frombuffer(passed, "<u8", (len(passed) - start) // 8, start)
        found |= np.isin(words, windows[likely[windows & bits]])
    return float(found.mean())


def test_the_traffic_of_a_room_contains_no_part_of_the_image_no_key_and_no_token(
    tmp_path: Path, ext4: Path, binary: str
) -> None:
    pytest.importorskip("distributed")
    if os.geteuid() != 0:
        pytest.skip("needs root, for network namespaces")
    image, content = tmp_path / "image.raw", ext4.read_bytes() + noise(2 * MIB, 3)
    image.write_bytes(content)
    with lab(tmp_path / "room", binary, secured=True) as room:
        invitations = work(room, image)
        passed, keys = room.end(), private_keys(room.folder)
    secrets = keys + tokens(invitations)
    assert len(passed) > 5 * 2 * MIB and len(keys) >= 2 * 5 and len(invitations) == 3
    assert share_of(content, passed) == 0
    assert [said for said in (*SAID, *secrets) if said in passed] == []

    # Without TLS, and with an image that contains those keys and tokens, all of them are found.
    content += b"\n".join(secrets).ljust(MIB, b"\n")
    image.write_bytes(content)
    with lab(tmp_path / "clear", binary, secured=False) as clear:
        work(clear, image)
        passed = clear.end()
    assert share_of(content, passed) > 0.99
    assert [said for said in (*SAID, *secrets) if said not in passed] == []
