"""A man-in-the-middle proxy that cuts, delays, splits, repeats and changes data: every byte is right, or a command fails."""

import base64
import contextlib
import hashlib
import json
import os
import random
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import MIB, PATIENCE_S, noise, run

Meddle = Callable[[bytes, random.Random], list[bytes] | None]
# The proxy meddles with at most this many connections.
MEDDLED_MAX = 3
# Where the proxy meddles, in bytes from the beginning of a direction: in handshakes and in content.
PLACES = (0, 40, 700, 3_000, 200_000)


def changed(piece: bytes, choice: random.Random) -> list[bytes]:
    """Flips one bit."""
    flipped = bytearray(piece)
    flipped[choice.randrange(len(piece))] ^= 1 << choice.randrange(8)
    return [bytes(flipped)]


def repeated(piece: bytes, _: random.Random) -> list[bytes]:
    """Sends a piece twice."""
    return [piece, piece]


def split(piece: bytes, choice: random.Random) -> list[bytes]:
    """Sends a piece in parts."""
    cuts = sorted(choice.randrange(len(piece)) for _ in range(20))
    return [piece[start:end] for start, end in zip([0, *cuts], [*cuts, len(piece)], strict=True) if start < end]


def left_out(piece: bytes, choice: random.Random) -> list[bytes]:
    """Leaves the beginning of a piece out."""
    return [piece[choice.randrange(len(piece)) :]]


def cut(_piece: bytes, _: random.Random) -> None:
    """Cuts the connection."""
    return


def delayed(piece: bytes, _: random.Random) -> list[bytes]:
    """Sends a piece late."""
    time.sleep(0.3)
    return [piece]


class Between:
    """A proxy in front of a server, which meddles once in each of `most` connections, in the direction `to_server`.

    The connections are meddled with at `places` in turn, from the place with the index `first` on.
    """

    def __init__(
        self,
        to: int,
        meddle: Meddle,
        to_server: bool,
        first: int,
        places: tuple[int, ...] = PLACES,
        most: int = MEDDLED_MAX,
    ):
        self._to, self._meddle, self._to_server, self._first = to, meddle, to_server, first
        self._places, self._most = places, most
        self._choice = random.Random(first)
        self.meddled = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        for number in range(10_000):
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                return
            place = self._places[(self._first + number) % len(self._places)] if self.meddled < self._most else None
            for source, sink, to_server in ((near, far, True), (far, near, False)):
                at = place if to_server == self._to_server else None
                threading.Thread(target=self._pass, args=(source, sink, at), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, place: int | None) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while piece := source.recv(1 << 16):
                pieces: list[bytes] | None = [piece]
                if place is not None and passed + len(piece) > place and self.meddled < self._most:
                    place = None
                    self.meddled += 1
                    pieces = self._meddle(piece, self._choice)
                passed += len(piece)
                if pieces is None:
                    source.shutdown(socket.SHUT_RDWR)
                    break
                for part in pieces:
                    sink.sendall(part)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Accepts no more connections."""
        self._listener.close()


@pytest.fixture
def agent(tmp_path: Path, binary: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, Path]]:
    """The port of an agent in a room, and its disk."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("CHEETAH_KEY", str(tmp_path / "custody.key"))
    monkeypatch.setenv("CHEETAH_ROOM", "lab")
    run(binary, "room", "init", "lab")
    disk, file = tmp_path / "disk.raw", tmp_path / "agent.pem"
    disk.write_bytes(noise(6 * MIB, 5))
    run(binary, "room", "credential", "--role", "agent", "--out", file)
    argv = [binary, "--json", "serve", str(disk), "--listen", "127.0.0.1:0", "--name", "sda", "--room", str(file)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as serving:
        assert serving.stdout
        uri = json.loads(serving.stdout.readline())["uri"]
        yield int(uri.rpartition(":")[2].partition("/")[0]), disk
        serving.terminate()


@pytest.mark.parametrize("to_server", [False, True])
@pytest.mark.parametrize("meddle", [changed, repeated, split, left_out, cut, delayed])
def test_an_acquisition_through_a_machine_that_meddles_has_the_right_bytes_or_fails(
    agent: tuple[int, Path], binary: str, tmp_path: Path, meddle: Meddle, to_server: bool
) -> None:
    port, disk = agent
    for first, place in enumerate(PLACES):
        is_content = place == PLACES[-1] and not to_server
        # A handshake that lacks bytes takes as long as a request may, so the test of content leaves handshakes alone.
        between = (
            Between(port, meddle, to_server, 0, (place,), 1) if is_content else Between(port, meddle, to_server, first)
        )
        out = tmp_path / f"copy{first}.raw"
        argv = [binary, "--json", "acquire", f"nbds://127.0.0.1:{between.port}/sda", str(out), "--timeout", "60"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=os.environ)
        between.close()
        # A client sends few bytes, so that a late place may not occur.
        assert between.meddled > 0 or to_server and place > 700
        assert "panicked" not in done.stderr
        if done.returncode == 0:
            assert out.read_bytes() == disk.read_bytes()
        else:
            assert "error: " in done.stderr and not out.exists(), done.stderr
        if meddle in (split, delayed) or is_content:
            # In mid-content, the client reconnects.
            assert done.returncode == 0, done.stderr


def with_port(invitation: str, port: int) -> str:
    """An invitation for another port of the same machine."""
    encoded = invitation.removeprefix("room1.")
    raw = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    # The role, the port, and at the end four bytes of a checksum.
    raw = raw[:1] + port.to_bytes(2, "big") + raw[3:-4]
    raw += hashlib.sha256(raw).digest()[:4]
    return "room1." + base64.urlsafe_b64encode(raw).decode().rstrip("=")


@pytest.mark.parametrize("to_server", [False, True])
@pytest.mark.parametrize("meddle", [changed, left_out, cut])
def test_an_invitation_for_one_machine_admits_one_machine_through_a_proxy_that_meddles(
    binary: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meddle: Meddle, to_server: bool
) -> None:
    monkeypatch.delenv("CHEETAH_ROOM", raising=False)
    examiner = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "examiner")}
    run(binary, "room", "init", "lab", env=examiner)
    argv = [binary, "--json", "room", "serve", "--listen", "127.0.0.1:0"]
    invite = ("room", "invite", "--no-serve", "--role", "analyst", "--uses", "1", "--address", "127.0.0.1")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=examiner) as serving:
        assert serving.stdout
        port = int(json.loads(serving.stdout.readline())["listen"].rpartition(":")[2])
        # The handshake's beginning and end, and the answer.
        places = (0, 300, 900, 1_300)
        for first in range(len(places)):
            invitation = json.loads(run(binary, "--json", *invite, env=examiner))["invitation"]
            between = Between(port, meddle, to_server, first, places)
            machine = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path / f"machine{first}")}
            argv = [binary, "--json", "room", "join", with_port(invitation, between.port), "--name", f"machine{first}"]
            done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=machine)
            between.close()
            assert between.meddled > 0 or to_server, done.stderr
            assert done.returncode == 0 or "error: " in done.stderr and "panicked" not in done.stderr, done.stderr
            # The same machine may ask again, and another one may not.
            run(binary, "room", "join", invitation, "--name", f"machine{first}", env=machine)
            other = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path / f"other{first}")}
            argv = [binary, "room", "join", invitation]
            assert subprocess.run(argv, capture_output=True, check=False, env=other).returncode != 0
        serving.terminate()
    listed = json.loads(run(binary, "--json", "room", "list", env=examiner))
    assert [member["name"] for member in listed["members"][1:]] == [f"machine{first}" for first in range(len(places))]
