"""An attack on a node that lends idle memory: a neighbour on its machine that takes and leaves memory all the time."""

import contextlib
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from attack.stage import Broken, Skipped, Stage, until

GROUPS = Path("/sys/fs/cgroup/memory")
LIMIT_BYTES = 400 << 20
ROUNDS = 20
# Takes as much as it can of what is free, touches each page, and lets go.
HOG = "import sys\nfor size in range(40, 260, 20):\n    taken = bytearray(size << 20)\n    del taken"


def idle_memory(stage: Stage) -> None:
    """The neighbour swings in a control group with a limit; the node stays, and each byte of its drive is right or an
    error."""
    with _group() as group, stage.server(
        "file", "node", "--memory", "auto", "--keep-free", "100MiB", "--listen", "127.0.0.1:0"
    ) as node:  # fmt: skip
        (group / "cgroup.procs").write_text(str(node.process.pid))
        until(lambda: _lent(node.ready["http"]) <= LIMIT_BYTES - (100 << 20), "the node follows the limit of its group")
        image = stage.path(".raw")
        image.write_bytes(stage.content[: 8 << 20])
        drive = stage.drive([node], image)
        for _ in range(stage.times(5, ROUNDS)):
            script = f"echo $$ > {group}/cgroup.procs; exec {sys.executable} -c '{HOG}'"
            subprocess.run(["sh", "-c", script], capture_output=True, timeout=300, check=False)
            node.check()
            _lent(node.ready["http"])
        code, out, complaint = stage.run("--json", "verify", drive)
        verdict = json.loads(out.splitlines()[0])
        # What the machine took back is lost, and never wrong.
        if code not in (0, 1, 3) or verdict.get("mismatched"):
            raise Broken(f"verify ended with {code}: {out}{complaint}")
        if code == 0 and verdict.get("ok") is not True:
            raise Broken(f"verify says {out}")
        stage.run("destroy", "--force", drive)


def _lent(http: str) -> int:
    with urllib.request.urlopen(f"http://{http}/v1/status", timeout=60) as answer:
        return int(json.load(answer)["memory"]["lent_bytes"])


@contextlib.contextmanager
def _group() -> Iterator[Path]:
    """A control group that limits memory."""
    group = GROUPS / f"cheetah-attack-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(LIMIT_BYTES))
    except OSError as error:
        raise Skipped("no control group of version 1 that limits memory can be made here") from error
    try:
        yield group
    finally:
        with contextlib.suppress(OSError):
            until(lambda: not (group / "cgroup.procs").read_text().strip(), "the group is empty")
            group.rmdir()
