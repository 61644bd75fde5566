"""Fixtures: images, nodes and servers that are removed automatically."""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20

# Nothing here takes this long unless the machine stalls.
PATIENCE_S = 180

# A shell makes background processes ignore SIGINT, which their children inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def a_key_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Custody logs of the tests are signed with a key of their own, and not with the user's."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("CHEETAH_KEY", str(tmp_path_factory.mktemp("key") / "custody.key"))
        yield


def program(name: str) -> str:
    """Returns a program's path; skips the test without it."""
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if path is None:
        pytest.skip(f"needs {name} (make test installs it)")
    return path


def run(*argv: str | Path, timeout_s: float = PATIENCE_S, **more: Any) -> str:
    """Runs a program, which must succeed; returns its output."""
    words = [str(word) for word in argv]
    done = subprocess.run(words, capture_output=True, text=True, timeout=timeout_s, check=False, **more)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout


def python(code: str, *argv: str, cwd: Path | None = None) -> str:
    """Runs Python in its own process, which must succeed in time; returns its output."""
    return run(sys.executable, "-c", code, *argv, cwd=cwd)


def listens(path: Path) -> bool:
    """Returns whether a Unix socket accepts connections. It exists a little earlier."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


def noise(size: int, seed: int) -> bytes:
    """Returns random bytes."""
    return random.Random(seed).randbytes(size)


@pytest.fixture(scope="session")
def binary() -> str:
    """The command line."""
    places = [os.environ.get("CHEETAH_STATIC"), ROOT / "target/static/cheetah", ROOT / "target/debug/cheetah"]
    for place in places:
        if place and Path(place).is_file():
            return str(place)
    pytest.skip("needs the command line (make static)")


@pytest.fixture(scope="session")
def evidence() -> Callable[[str], Path]:
    """Finds real images that are not part of the project."""
    folder = Path(os.environ.get("CHEETAH_EVIDENCE", ROOT.parent / "shared/evidence"))

    def find(name: str) -> Path:
        if not (folder / name).is_file():
            pytest.skip(f"needs {name} in a folder of real images (CHEETAH_EVIDENCE)")
        return folder / name

    return find


@pytest.fixture
def nodes(binary: str) -> Iterator[str]:
    """Two empty nodes, as `--nodes` takes them."""
    argv = [binary, "--json", "node", "--memory", "48MiB", "--listen", "127.0.0.1:0"]
    # Tests know their own processes by a temporary directory of theirs.
    env = {name: value for name, value in os.environ.items() if name != "TMPDIR"}
    running = [subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        yield ",".join(json.loads(node.stdout.readline())["nbd"] for node in running if node.stdout)
    finally:
        for node in running:
            node.terminate()
            node.wait(PATIENCE_S)


@pytest.fixture
def drive(binary: str, nodes: str) -> Callable[[Path, Path], Path]:
    """Creates a drive over the nodes, with an image in it."""

    def make(path: Path, image: Path) -> Path:
        run(binary, "create", path, "--nodes", nodes, "--layout", "stripe", "--from", image)
        return path

    return make


@pytest.fixture(scope="session")
def ntfs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An NTFS volume in a raw image, with some files."""
    image = tmp_path_factory.mktemp("ntfs") / "case42.raw"
    with image.open("wb") as file:
        file.truncate(8 * MIB)
    run(program("mkntfs"), "-F", "-Q", "-q", "-L", "case42", image)
    for name in ("letter.txt", "ledger.bin", "photo.jpg"):
        content = image.with_name(name)
        content.write_bytes(noise(30_000, len(name)))
        run(program("ntfscp"), "-f", "-q", image, content, name)
        content.unlink()
    return image


@pytest.fixture(scope="session")
def ext4(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ext4 volume in a raw image, with a small tree."""
    folder = tmp_path_factory.mktemp("ext4")
    for index in range(12):
        path = folder / f"tree/dir{index % 3}/file{index}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(noise(index * 3000, index))
    image = folder / "disk.raw"
    run(program("mkfs.ext4"), "-q", "-d", folder / "tree", image, "8M")
    return image


@pytest.fixture
def nbdkit(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Starts nbdkit with the given arguments; returns the URI."""
    servers: list[subprocess.Popen[bytes]] = []

    def serve(*argv: str | Path) -> str:
        place = tmp_path / f"nbdkit{len(servers)}.sock"
        servers.append(subprocess.Popen([program("nbdkit"), "-f", "-U", place, *argv]))
        until = time.monotonic() + PATIENCE_S
        while not listens(place):
            assert servers[-1].poll() is None, "nbdkit ended"
            assert time.monotonic() < until, "nbdkit does not listen"
            time.sleep(0.01)
        return f"nbd+unix:///?socket={place}"

    yield serve
    for server in servers:
        server.terminate()
        server.wait(PATIENCE_S)
