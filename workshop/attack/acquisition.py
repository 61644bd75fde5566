"""Attacks on an interrupted acquisition: a journal that was exchanged, files in place of partial images, a source that
changes, a record of a lazy drive that claims everything."""

import os
import shutil
import subprocess
import time
from pathlib import Path

from attack.stage import PATIENCE_S, Broken, Stage, until

SOURCE_BYTES = 96 << 20


def forged_journal(stage: Stage) -> None:
    """Puts journal and partial image of another acquisition in place, which was of an altered source."""
    mine, theirs = _folder(stage), _folder(stage)
    content = stage.random.randbytes(SOURCE_BYTES)
    (mine / "s.raw").write_bytes(content)
    (theirs / "s.raw").write_bytes(b"forged" + content[6:])
    for folder in (mine, theirs):
        _interrupted(stage, folder)
    for name in ("o.raw.partial", "o.raw.acquire"):
        shutil.copyfile(theirs / name, mine / name)
    _must_fail(stage, mine, {3})
    if (mine / "o.raw").exists():
        raise Broken("an image was made of a forged journal")


def foreign_partial(stage: Stage) -> None:
    """Puts other files, and hard links of them, in place of a partial image; starting over removes none of them."""
    for name in ("o.raw.partial", "o.E01.partial"):
        for place in (os.link, shutil.copyfile):
            folder = _folder(stage)
            (folder / "s.raw").write_bytes(stage.random.randbytes(SOURCE_BYTES))
            _interrupted(stage, folder, "o.raw", "o.E01")
            precious = stage.random.randbytes(SOURCE_BYTES + 1000)
            (folder / "precious").write_bytes(precious)
            (folder / name).unlink()
            place(folder / "precious", folder / name)
            _must_fail(stage, folder, {1, 2, 3}, "o.raw", "o.E01")
            for option in ("--restart", "--discard"):
                _must_fail(stage, folder, {1, 2, 3}, "o.raw", "o.E01", option)
            for file in (folder / "precious", folder / name):
                if file.read_bytes() != precious:
                    raise Broken(f"{file.name} was changed, {place.__name__} as {name}")


def changing_source(stage: Stage) -> None:
    """Changes a source in mid-run, and puts its time of modification back."""
    folder = _folder(stage)
    source = folder / "s.raw"
    source.write_bytes(stage.random.randbytes(SOURCE_BYTES))
    times = source.stat()
    process = _started(stage, folder)
    with source.open("r+b") as file:
        for at in (0, SOURCE_BYTES - 100):
            file.seek(at)
            file.write(b"changed")
    os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
    if (code := process.wait(PATIENCE_S)) != 3:
        raise Broken(f"a source that changed in mid-run: exit code {code}")


def forged_fill(stage: Stage) -> None:
    """Kills the fill of a lazy drive, and has its record call everything read."""
    with stage.node("file") as node, stage.server("file", "serve", stage.image, "--listen", "127.0.0.1:0", "--rate-max", f"{stage.times(1, 8)}MiB") as agent:  # fmt: skip
        drive = stage.path(".drive")
        stage.must("create", drive, "--nodes", node.ready["nbd"], "--from", agent.ready["uri"], "--lazy")
        record = Path(f"{drive}.map")
        filling = subprocess.Popen([stage.binary, "load", drive], env=_env(stage), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        try:
            until(lambda: record.exists() and " +" in record.read_text(), "a record of a fill")
        finally:
            filling.kill()
            filling.wait()
        forged = record.read_text().replace(" ?", " +")
        if forged == record.read_text():
            raise Broken("the fill ended before it was killed")
        record.write_text(forged)
        code, _, complaint = stage.run("load", drive, "--timeout", "60")
        saved = stage.path(".raw")
        if code == 0 and (stage.run("save", drive, saved)[0] != 0 or saved.read_bytes() != stage.content):
            raise Broken("a forged record of a fill led to a signed image of something else")
        if code not in (0, 1, 3):
            raise Broken(f"exit code {code}: {complaint.strip()}")


def _folder(stage: Stage) -> Path:
    folder = stage.path("")
    folder.mkdir()
    return folder


def _command(stage: Stage, names: tuple[str, ...]) -> list[str | Path]:
    return [stage.binary, "acquire", "s.raw", *(names or ("o.raw",)), "--checkpoint", "1MiB", "--hash", "md5"]


def _env(stage: Stage) -> dict[str, str]:
    return {
        **os.environ,
        "CHEETAH_KEY": str(stage.folder / "custody.key"),
        "XDG_STATE_HOME": str(stage.folder / "state"),
    }


def _started(stage: Stage, folder: Path, *names: str) -> subprocess.Popen[bytes]:
    """Starts an acquisition, and returns when it has a checkpoint."""
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(_command(stage, names), cwd=folder, env=_env(stage), stdout=quiet, stderr=quiet)
    journal, until = folder / "o.raw.acquire", time.monotonic() + PATIENCE_S
    while time.monotonic() < until and process.poll() is None:
        if journal.exists() and journal.read_bytes().count(b'{"checkpoint"') > 1:
            return process
    raise Broken(f"an acquisition has no checkpoint; it ended with {process.poll()}")


def _interrupted(stage: Stage, folder: Path, *names: str) -> None:
    process = _started(stage, folder, *names)
    process.kill()
    process.wait()
    if not (folder / "o.raw.acquire").exists():
        raise Broken("the acquisition ended before it was killed")


def _must_fail(stage: Stage, folder: Path, codes: set[int], *names: str) -> None:
    ran = subprocess.run(
        _command(stage, names), cwd=folder, env=_env(stage), capture_output=True, check=False, timeout=PATIENCE_S
    )
    if ran.returncode not in codes:
        raise Broken(f"exit code {ran.returncode}: {ran.stderr.decode(errors='replace').strip()}")
