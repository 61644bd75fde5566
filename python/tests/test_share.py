"""One process opens a source, others read it there."""

import hashlib
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import MIB, PATIENCE_S, noise, python

import cheetah

HASH = """
import sys, hashlib, cheetah
with cheetah.open(sys.argv[1]) as device:
    print(device.name, hashlib.file_digest(device, "sha256").hexdigest())
"""


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "case 42%.raw"
    path.write_bytes(noise(2 * MIB + 100, 4))
    return path


def test_processes_read_a_shared_source(image: Path) -> None:
    with cheetah.share(image) as share:
        assert (share.name, share.size, share.lost) == ("case 42%", 2 * MIB + 100, [])
        argv = [sys.executable, "-c", HASH, share.uri]
        readers = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(4)]
        said = [reader.communicate(timeout=PATIENCE_S)[0] for reader in readers]
        assert said == [f"case 42% {hashlib.sha256(image.read_bytes()).hexdigest()}\n"] * 4
        stats = share.stats()
        assert stats["served_bytes"] >= 4 * share.size and stats["served_requests"] >= 4
        assert 0 < stats["source_bytes"] <= stats["served_bytes"] + 64 * MIB


def test_bytes_fetched_by_one_process_are_cached_for_all(image: Path, nbdkit: Callable[..., str]) -> None:
    digest = hashlib.sha256(image.read_bytes()).hexdigest()
    with cheetah.share(nbdkit("file", image)) as share:
        assert [python(HASH, share.uri) for _ in range(2)] == [f"nbd {digest}\n"] * 2
        stats = share.stats()
        assert stats["served_bytes"] >= 2 * share.size
        assert stats["source_bytes"] <= share.size and stats["cache_hits"] > 0


def test_a_cache_of_zero_caches_nothing(image: Path, nbdkit: Callable[..., str]) -> None:
    with cheetah.share(nbdkit("file", image), cache=0, prefetch=0) as share:
        for _ in range(2):
            assert len(cheetah.open(share.uri).pread(0, MIB)) == MIB
        assert share.stats()["source_bytes"] == 2 * MIB


def test_the_cache_may_be_on_disk(image: Path, tmp_path: Path, nbdkit: Callable[..., str]) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    with cheetah.open(nbdkit("file", image), cache=f"{kept}:4MiB") as device:
        assert device.read() == image.read_bytes() == device.pread(0, device.size)
        assert list(kept.iterdir()) == []
    with pytest.raises(ValueError, match="cache"):
        cheetah.open(image, cache="memory:lots")


def test_the_socket_is_private_and_gone_afterwards(image: Path) -> None:
    share = cheetah.share(image)
    socket = Path(share.uri.partition("socket=")[2])
    assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700 and stat.S_ISSOCK(socket.stat().st_mode)
    device = cheetah.open(share.uri, timeout_s=5)
    assert device.pread(0, 4) == image.read_bytes()[:4]
    share.close()
    share.close()
    assert share.closed and not socket.parent.exists()
    with pytest.raises(ValueError, match="closed"):
        share.stats()
    with pytest.raises(OSError):
        device.pread(0, 4)
    with pytest.raises(cheetah.Error):
        cheetah.open(share.uri)


def test_a_closed_hub_leaves_nothing_behind(image: Path) -> None:
    code = """
import os, sys, cheetah
share = cheetah.share(sys.argv[1])
print(share.uri.partition("socket=")[2], flush=True)
if os.fork() == 0:
    sys.exit(0)
assert os.wait()[1] == 0
# A forked process that has ended must not have ended the share.
print(len(cheetah.open(share.uri).pread(0, 9)))
"""
    socket, read = python(code, str(image)).splitlines()
    assert read == "9" and not os.path.exists(os.path.dirname(socket))


def test_a_source_that_cannot_be_opened_is_not_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(cheetah.Error, match=r"nothing\.raw"):
        cheetah.share("nothing.raw")
    assert list(tmp_path.iterdir()) == []


def test_an_unreadable_range_is_an_error_in_every_process(
    tmp_path: Path, nbdkit: Callable[..., str], image: Path
) -> None:
    failing = tmp_path / "failing"
    uri = nbdkit(
        "--filter=error", "file", image, "error-pread=EIO", "error-pread-rate=100%", f"error-pread-file={failing}"
    )
    with cheetah.share(uri, foresight=False) as share, cheetah.open(share.uri) as device:
        # The start of the source was read when it was opened.
        failing.touch()
        with pytest.raises(OSError):
            device.pread(MIB, 512)
        failing.unlink()
        assert device.pread(MIB, 512) == image.read_bytes()[MIB:][:512]
