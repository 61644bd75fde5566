"""Runs the commands of pages of the documentation as they stand there, with other places and ports."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from conftest import PATIENCE_S, ROOT

GUIDE = ROOT / "docs/guide"
# A page waits for servers by time, which says nothing on a busy machine.
PAUSE = "sleep 1\n"
_SERVERS = re.compile(r"--listen 127\.0\.0\.1:([1-9]\d*)|--port=(\d+)")
_SOCKETS = re.compile(r'--unix ("[^"]*"|\S+)')


def text(page: str) -> str:
    """A page of the guide."""
    return (GUIDE / page).read_text()


def blocks(page: str) -> list[str]:
    """The commands of a page, or of one of its chapters (`page.md#chapter`), block by block."""
    name, _, chapter = page.partition("#")
    said = text(name)
    if chapter:
        title = chapter.replace("-", " ")
        [said] = re.findall(rf"(?ims)^## {re.escape(title)}$(.*?)(?=^## |\Z)", said)
    return re.findall(r"(?ms)^```sh\n(.*?)^```$", said)


def changed(script: str, changes: Mapping[str, str]) -> str:
    """A script with some of its words changed, each of which must be in it."""
    for old, new in changes.items():
        assert old in script, f"the page has no {old!r}"
        script = script.replace(old, new)
    return script


def free_ports(count: int) -> list[int]:
    """Free ports; the one after each is free, too, as a node takes both."""
    found: list[int] = []
    with contextlib.ExitStack() as held:
        while len(found) < count:
            first, second = (held.enter_context(socket.socket()) for _ in range(2))
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            with contextlib.suppress(OSError, OverflowError):
                second.bind(("127.0.0.1", port + 1))
                found.append(port)
    return found


def patient(script: str) -> str:
    """A script that waits for the servers that it has started since the last pause, in place of the pause."""
    parts = script.split(PAUSE)
    for number, part in enumerate(parts[:-1]):
        waits = [
            f"until (exec 3<>/dev/tcp/127.0.0.1/{first or second}) 2>/dev/null; do sleep 0.05; done\n"
            for first, second in _SERVERS.findall(part)
        ]
        waits += [f"until [[ -S {place} ]]; do sleep 0.05; done\n" for place in _SOCKETS.findall(part)]
        assert waits, f"nothing is waited for after: {part}"
        parts[number] = part + "".join(waits)
    return "".join(parts)


def run_script(script: str, binary: str, folder: Path, cwd: Path | None = None) -> str:
    """Runs a script in bash, as a user whose home is the folder; it must succeed. Returns its output. What it leaves running
    or mounted is ended."""
    tools = folder / "bin"
    tools.mkdir(exist_ok=True)
    (tools / "cheetah").symlink_to(binary)
    (tools / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (tools / "python3").chmod(0o755)
    env = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}", "CHEETAH_PYTHON": sys.executable, "HOME": str(folder)}
    env |= {"XDG_CONFIG_HOME": str(folder / "config"), "XDG_STATE_HOME": str(folder / "state")}
    env.pop("CHEETAH_ROOM", None)
    argv = ["bash", "-e", "-m", "-o", "pipefail", "-c", patient(script)]
    with open(folder / "said", "w+b") as said:
        shell = subprocess.Popen(
            argv, cwd=cwd or folder, env=env, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code = shell.wait(4 * PATIENCE_S)
        finally:
            _end_session(shell.pid)
            _unmount(folder)
        said.seek(0)
        output = said.read().decode(errors="replace")
    assert code == 0, output
    return output


def _end_session(session: int) -> None:
    """Ends the processes of a session. With job control, each of its jobs is a group of its own."""
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            process = int(place.name)
            if os.getsid(process) == session:
                os.kill(process, signal.SIGKILL)


def _unmount(folder: Path) -> None:
    """Ends the mounts below a folder, which only a script that failed leaves."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        place = Path(line.split(" ")[1])
        if folder in place.parents:
            subprocess.run(["fusermount3", "-u", "-z", place], capture_output=True, timeout=PATIENCE_S, check=False)
