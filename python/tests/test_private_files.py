"""Files that the verbs in Python create are their owner's alone, whatever the umask is."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import triage_worker
from conftest import PATIENCE_S

import cheetah
from cheetah.triage.hub import custody


def open_to_others(*folders: Path) -> list[str]:
    """Everything in folders that other users have a right to."""
    found = [path for folder in folders for path in (folder, *folder.rglob("*")) if not path.is_symlink()]
    return [f"{path} {path.stat().st_mode & 0o7777:o}" for path in found if path.stat().st_mode & 0o077]


def with_open_umask(argv: list[str], **places: str) -> None:
    """Runs a program under the umask 000; all that it may create lies at `places`."""
    shell = ["sh", "-c", 'umask 000; exec "$0" "$@"', *argv]
    environment = {**os.environ, **places}
    done = subprocess.run(shell, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=environment)
    assert done.returncode == 0, done.stderr


def test_a_triage_its_lists_and_its_cache_are_the_users_alone(
    tmp_path: Path, nbdkit: Callable[..., str], binary: str
) -> None:
    image = triage_worker.fat(tmp_path / "image.raw", {"LETTER.TXT": b"Dear Sir"})
    for name, content in (("words", "Dear\n"), ("known.md5", f"{'0' * 32}\n"), ("rules", "rule a { condition: true }")):
        (tmp_path / name).write_text(content)
    names = ("config", "cache", "state", "home", "tmp")
    places = {name: tmp_path / name for name in names}
    for place in places.values():
        place.mkdir(0o700)
    environment = {f"XDG_{name.upper()}_HOME": str(places[name]) for name in names[:3]}
    environment |= {"HOME": str(places["home"]), "TMPDIR": str(places["tmp"]), "CHEETAH_PYTHON": sys.executable}
    lists = ["--keywords", "words", "--known", "known.md5", "--yara", "rules"]
    options = [word if word.startswith("--") else str(tmp_path / word) for word in lists]
    for number, source in enumerate((str(image), nbdkit("-r", "file", image))):
        out = tmp_path / f"out{number}"
        with_open_umask([binary, "triage", source, "--out", str(out), *options], **environment)
        assert open_to_others(out) == []
        assert len(list(out.rglob("*"))) > 10
    assert any(places["cache"].rglob("*")), "the converted hash list is kept"
    assert open_to_others(*places.values()) == []


def test_what_a_library_writes_is_the_users_alone(tmp_path: Path, nbdkit: Callable[..., str]) -> None:
    image = triage_worker.fat(tmp_path / "image.raw", {"LETTER.TXT": b"Dear Sir"})
    uri = nbdkit("-r", "file", image)
    cache, out = tmp_path / "cache", tmp_path / "out"
    for folder in (cache, out):
        folder.mkdir(0o700)
    before = os.umask(0)
    try:
        with cheetah.open(uri, cache=f"{cache}:1MiB") as device, cheetah.share(uri) as share:
            device.pread(0, 4096)
            socket = Path(share.uri.partition("socket=")[2])
            assert open_to_others(cache, socket.parent.parent / socket.parent.name) == []
        custody.Custody(out).stop("tried")
    finally:
        os.umask(before)
    assert open_to_others(out) == []
