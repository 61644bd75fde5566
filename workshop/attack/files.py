"""Files of other users, and files that nothing else replaces: no other user may read what Cheetah makes, and no image may
replace the files of a drive."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from attack.stage import Broken, Skipped, Stage

NOBODY = 65534
BESIDE = ("", ".seal", ".custody", ".digests")
"""The suffixes of a sealed drive's file and of the files beside it."""


def other_users(stage: Stage) -> None:
    """Lets another user look for what it can read or write, while a mount and exports run: images, mounts, sockets, logs,
    caches and keys are their owner's alone. A mount with --allow-other is not."""
    if os.geteuid() != 0 or not Path("/dev/fuse").exists() or not shutil.which("find"):
        raise Skipped("this needs root, FUSE and find")
    with _open_folder(stage) as folder, stage.node("file") as node:
        secret = folder / "secret.raw"
        secret.write_bytes(stage.content[: 1 << 20])
        secret.chmod(0o600)
        stage.must("acquire", secret, folder / "copy.raw", folder / "copy.E01", "--hash", "md5")
        drive = folder / "a.drive"
        stage.must("create", drive, "--nodes", node.ready["nbd"], "--from", secret)
        stage.must("save", drive, folder / "saved.raw")
        stage.must("create", folder / "lazy.drive", "--nodes", node.ready["nbd"], "--from", secret, "--lazy")
        (folder / "cache").mkdir(mode=0o700)
        cache, over = f"{folder / 'cache'}:8MiB", folder / "over"
        with (
            stage.server("file", "export", drive, "--unix", folder / "drive.sock", "--overlay", over),
            stage.server("file", "export", folder / "lazy.drive", "--unix", folder / "lazy.sock", "--cache", cache),
        ):
            for words, is_open in (((), False), (("--allow-other",), True)):
                _mounted(stage, folder, secret, words, is_open)


def _mounted(stage: Stage, folder: Path, secret: Path, words: tuple[str, ...], is_open: bool) -> None:
    place = folder / "mount"
    place.mkdir(mode=0o755)
    with stage.server("file", "mount", secret, place, *words) as mount:
        shown = Path(mount.ready["file"])
        if shown.read_bytes() != secret.read_bytes():
            raise Broken("a mount shows other bytes")
        found = _found_by_nobody(stage, folder) - {folder / "open", place}
        if found != ({shown} if is_open else set()):
            raise Broken(f"with {words or 'no option'}, another user can use {sorted(map(str, found))}")
    place.rmdir()


@contextlib.contextmanager
def _open_folder(stage: Stage) -> Iterator[Path]:
    """A folder that every user can look into, without a umask that would hide a file."""
    folder = stage.path("")
    umask = os.umask(0)
    mode = stage.folder.stat().st_mode
    try:
        folder.mkdir(mode=0o755)
        (folder / "open").touch(mode=0o666)
        stage.folder.chmod(0o711)
        yield folder
    finally:
        stage.folder.chmod(mode)
        os.umask(umask)


def _found_by_nobody(stage: Stage, folder: Path) -> set[Path]:
    """Returns what the user nobody may read or write."""
    places = [folder, stage.folder / "custody.key", stage.folder / "state"]
    words = ["find", *map(str, places), "(", "-readable", "-o", "-writable", ")", "-print"]
    ran = subprocess.run(words, user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, cwd="/", check=False)
    found = {Path(line) for line in ran.stdout.decode().splitlines()}
    if folder / "open" not in found:
        raise Broken(f"a user cannot see an open file: {ran.stderr.decode()}")
    return found - {folder}


def saved_over(stage: Stage) -> None:
    """Saves a drive with --force over its own files, and over hard and symbolic links to them: each is refused, and no file
    changes."""
    passphrase = stage.path(".pass")
    passphrase.write_text("a passphrase\n")
    image = stage.path(".img")
    image.write_bytes(stage.content[: 1 << 20])
    key = ("--passphrase-file", passphrase)
    with stage.node("file") as node:
        drive = stage.path(".drive")
        stage.must("create", drive, "--nodes", node.ready["nbd"], "--from", image, "--seal", *key)
        own = [Path(f"{drive}{suffix}") for suffix in BESIDE]
        before = {path: path.read_bytes() for path in own}
        for path in own:
            hard, soft = stage.path(".raw"), stage.path(".raw")
            hard.hardlink_to(path)
            soft.symlink_to(path)
            for target in (path, hard, soft):
                for more in ((), ("--hash", "none"), ("--whole",), ("--partial",)):
                    code, _, complaint = stage.run("save", drive, target, "--force", *more, *key)
                    if code != 2:
                        raise Broken(f"save over {target.name}, {path.name}, ended with {code}: {complaint.strip()}")
            if not soft.is_symlink() or not hard.samefile(path):
                raise Broken(f"a link to {path.name} was replaced")
        if changed := [path.name for path in own if path.read_bytes() != before[path]]:
            raise Broken(f"save has changed {changed}")
        stage.must("verify", drive, *key)
