"""Commands that are killed (SIGKILL) at odd moments, and run again."""

import contextlib
import json
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from attack.stage import PATIENCE_S, Broken, Server, Stage, until
from attack.wire import connect

CONFIRM_S = 60
"""The time for which a node keeps memory for a drive that has no drive file yet."""
PARTS = 8
"""The parts of a drive on each node: they are reserved one after the other."""


def acquisitions(stage: Stage) -> None:
    """Kills acquisitions into a raw image and an E01 again and again; the same command completes both, exactly."""
    whole = _folder(stage)
    longest_s = _seconds(stage, *_acquire(stage, whole))
    for _ in range(stage.times(6, 20)):
        folder = _folder(stage)
        words = _acquire(stage, folder)
        for _ in range(stage.times(4, 8)):
            if not _is_acquired(folder):
                _kill(stage, longest_s, *words)
        if not _is_acquired(folder):
            stage.must(*words)
        _must_hold(folder, {path.name for path in whole.iterdir()})
        back = folder / "back.raw"
        stage.must("acquire", folder / "o.E01", back, "--hash", "md5")
        for path in (folder / "o.raw", back):
            if path.read_bytes() != stage.content:
                raise Broken(f"a resumed acquisition of {path.name} holds other bytes")
        for name in ("o.raw", "o.E01"):
            stage.must("verify", folder / name)


def _acquire(stage: Stage, folder: Path) -> tuple[str | Path, ...]:
    options = ("--checkpoint", "1MiB", "--hash", "md5", "--level", "none")
    return ("acquire", stage.image, folder / "o.raw", folder / "o.E01", *options)


def _is_acquired(folder: Path) -> bool:
    """Whether nothing is left to resume: the journal goes last."""
    return all((folder / name).exists() for name in ("o.raw", "o.E01")) and not (folder / "o.raw.acquire").exists()


def _must_hold(folder: Path, names: set[str]) -> None:
    """A folder holds these files. What killed commands were writing is hidden beside them, and its owner's alone."""
    hidden = {path.name for path in folder.glob(".*") if not path.stat().st_mode & 0o077}
    if (found := {path.name for path in folder.iterdir()} - hidden) != names:
        raise Broken(f"killed commands leave {sorted(found)}")


def saves(stage: Stage) -> None:
    """Kills saves over an older file: its name has the older file or the image, whole, and in the end the image. What is left
    beside it is hidden, and its owner's alone."""
    with stage.node("file") as node:
        drive = stage.drive([node])
        older = stage.random.randbytes(len(stage.content) // 2)
        folder = _folder(stage)
        target = folder / "o.raw"
        words = ("save", drive, target, "--force")
        longest_s = _seconds(stage, *words)
        for _ in range(stage.times(20, 60)):
            target.write_bytes(older)
            _kill(stage, longest_s, *words)
            if target.read_bytes() not in (older, stage.content):
                raise Broken("a killed save leaves part of an image under its name")
        stage.must(*words)
        if target.read_bytes() != stage.content:
            raise Broken("a save after killed ones holds other bytes")
        _must_hold(folder, {target.name})


def loads(stage: Stage) -> None:
    """Kills loads over another image, onto a drive and onto a sealed mirror: the drive is saved as one of both images, or
    not; loaded again, it is right."""
    identity = stage.path(".key")
    stage.must("drive", "identity", identity)
    with stage.node("file") as one, stage.node("file") as other:
        _loads(stage, (one,))
        _loads(stage, (one, other), "--identity", identity)


def _loads(stage: Stage, nodes: tuple[Server, ...], *key: str | Path) -> None:
    drive, other = stage.path(".drive"), stage.path(".img")
    other.write_bytes(stage.random.randbytes(len(stage.content)))
    sources = (other, stage.image)
    names = ",".join(node.ready["nbd"] for node in nodes)
    stage.must("create", drive, "--nodes", names, "--from", stage.image, *(("--seal", *key) if key else ()))
    # The lease of a killed process has not ended yet.
    options = ("--force", "--force-lease", "--hash", "md5", *key)
    longest_s = _seconds(stage, "load", drive, other, *options)
    for turn in range(stage.times(8, 40)):
        _kill(stage, longest_s, "load", drive, sources[turn % 2], *options)
        copy = stage.path(".raw")
        code, _, complaint = stage.run("save", drive, copy, "--hash", "none", *key)
        if code not in (0, 3):
            raise Broken(f"save after a killed load ended with {code}: {complaint.strip()}")
        if code == 0 and copy.read_bytes() not in (other.read_bytes(), stage.content):
            raise Broken("save after a killed load leaves an image of something else")
        copy.unlink(missing_ok=True)
    for source in sources:
        stage.must("load", drive, source, *options)
        stage.must("verify", drive, *key)
        copy = stage.path(".raw")
        stage.must("save", drive, copy, *key)
        if copy.read_bytes() != source.read_bytes():
            raise Broken("a drive that is loaded after killed loads holds other bytes")
        copy.unlink()
    stage.must("destroy", drive)


def creations(stage: Stage) -> None:
    """Kills the creation of drives when some of their parts are reserved, and when one of their files is there. A drive file
    frees the memory of its drive, memory that no drive file names is freed by its node, and the same command makes the drive."""
    identity, image = stage.path(".key"), stage.path(".img")
    stage.must("drive", "identity", identity)
    image.write_bytes(stage.content[: 1 << 20])
    with stage.node("file", "1GiB") as one, stage.node("file", "1GiB") as other:
        nodes = (one, other)
        names = ",".join(node.ready["nbd"] for node in nodes)
        layout = ("--layout", "mirror", "--parts", str(PARTS), "--seal", "--identity", identity)
        for turn in range(stage.times(1, 3)):
            for moment in (1 + turn, PARTS + turn, 2 * PARTS - 1, ".seal", "", ".custody"):
                drive = stage.path(".drive")
                words = ("create", drive, "--nodes", names, "--from", image, "--hash", "md5", *layout)
                with _started(stage, *words) as process:
                    _await(process, _moment(nodes, drive, moment))
                if not drive.exists():
                    # The record may be another drive's, and is not overwritten.
                    Path(f"{drive}.seal").unlink(missing_ok=True)
                    stage.must(*words)
                stage.must("destroy", drive, "--force")
                _must_be_temporary(nodes)
        _must_be_freed(stage, nodes)


def reservations(stage: Stage) -> None:
    """Ends the connections of requests for memory at odd moments, as those of a killed creator end: what was reserved is freed
    when its time is over."""
    with stage.node("file") as node:
        for number in range(stage.times(400, 4_000)):
            _request_and_leave(node.ready["http"], f"left-{number}", stage.random.uniform(0, 0.002))
        until(lambda: not _exports((node,)), "the node frees memory that was requested and not confirmed")


def _request_and_leave(control: str, name: str, wait_s: float) -> None:
    """Requests memory that is freed after a second unless it is confirmed, and ends the connection."""
    body = json.dumps({"name": name, "size_bytes": 4096, "reserve": True})
    head = f"POST /v1/exports?confirm_s=1 HTTP/1.1\r\nHost: {control}\r\nContent-Type: application/json\r\n"
    with connect(control) as connection:
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        time.sleep(wait_s)


def _moment(nodes: Iterable[Server], drive: Path, moment: int | str) -> Callable[[], bool]:
    """A moment of a creation: this many more parts are reserved, or the file with this suffix is there."""
    if isinstance(moment, str):
        return Path(f"{drive}{moment}").exists
    goal = len(_exports(nodes)) + moment
    return lambda: len(_exports(nodes)) >= goal


def _await(process: "subprocess.Popen[bytes]", condition: Callable[[], bool]) -> None:
    """Returns at once when a condition is met, or the process has ended."""
    end = time.monotonic() + PATIENCE_S
    while not condition() and process.poll() is None:
        if time.monotonic() > end:
            raise Broken("a command hangs")


def _must_be_freed(stage: Stage, nodes: Iterable[Server]) -> None:
    """What is reserved has no drive file: it is freed when its time is over, which a quick run does not await."""
    orphans = _exports(nodes)
    if not orphans:
        raise Broken("no creation was killed before its drive file was there")
    goal = CONFIRM_S // 2 if not stage.quick else max(left_s or 0 for left_s in orphans.values()) - 1
    until(lambda: all((left_s or 0) <= goal for left_s in _exports(nodes).values()), "the time of reservations runs")
    if not stage.quick:
        until(lambda: not _exports(nodes), "the nodes free memory that no drive file names")


def _must_be_temporary(nodes: Iterable[Server]) -> None:
    """No drive is left: every reservation ends by itself."""
    lasting = [name for name, left_s in _exports(nodes).items() if left_s is None or left_s > CONFIRM_S]
    if lasting:
        raise Broken(f"memory is reserved for good without a drive file: {lasting}")


def _exports(nodes: Iterable[Server]) -> dict[str, int | None]:
    """Returns the exports of nodes, with the seconds after which each is freed unless it is confirmed."""
    found = {}
    for node in nodes:
        with urllib.request.urlopen(f"http://{node.ready['http']}/v1/status", timeout=PATIENCE_S) as answer:
            for export in json.load(answer)["exports"]:
                found[f"{node.ready['http']}/{export['name']}"] = export.get("confirm_in_s")
    return found


def _folder(stage: Stage) -> Path:
    folder = stage.path("")
    folder.mkdir()
    return folder


def _seconds(stage: Stage, *words: str | Path) -> float:
    """Runs a command that must succeed; returns how long it takes."""
    began = time.monotonic()
    stage.must(*words)
    return time.monotonic() - began


def _kill(stage: Stage, longest_s: float, *words: str | Path) -> None:
    """Starts a command, and kills it at a random moment, if it has not ended. It may not fail before."""
    with _started(stage, *words) as process:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(stage.random.uniform(0, longest_s))


@contextlib.contextmanager
def _started(stage: Stage, *words: str | Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Starts a command, and kills it in the end. It may not fail before."""
    complaint = stage.path(".stderr")
    with complaint.open("wb") as stderr:
        process = subprocess.Popen(
            [*stage.command, *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr,
            env=stage.environment(),
        )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
    if (code := process.wait(PATIENCE_S)) not in (0, -9):
        raise Broken(f"cheetah {' '.join(map(str, words))} ended with {code}: {complaint.read_text().strip()}")
